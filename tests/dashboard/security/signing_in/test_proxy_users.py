"""People whom a proxy has signed in: its header counts from listed addresses alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from websockets.exceptions import ConnectionClosed

from dashboard.settings import Settings
from db.people import removal
from tests.dashboard.running import LIMIT_S, running

HEADER = "X-Auth-Request-Email"


def test_a_listed_proxy_says_who_it_is(tmp_path: Path) -> None:
    listed = {"trusted_proxies": ["127.0.0.1"], "proxy_user_header": HEADER, "email_domains": ["lab.example"]}
    with running(tmp_path / "data", **listed) as dashboard:
        ana = dashboard.anonymous(**{HEADER: "Ana@lab.example", "Origin": dashboard.url})
        me = ana.get("/api/me").json()
        assert (me["name"], me["role"], me["email"]) == ("ana", "viewer", "ana@lab.example")
        assert ana.get("/", headers={"Accept": "text/html"}).status_code != 401
        for wrong in ("ben@elsewhere.example", "owner", "", "a@lab.example,b@lab.example"):
            refused = dashboard.anonymous(**{HEADER: wrong}).get("/api/me")
            assert refused.status_code == 403 and refused.json()["detail"]["message"].endswith(".")
        written = dashboard.http.get("/api/audit?action=sign-in-refused").json()
        assert "ben@elsewhere.example" in {entry["object"] for entry in written}
        foreign = ana.patch("/api/me", json={"email": "x@lab.example"}, headers={"Origin": "http://evil.example"})
        assert foreign.status_code == 403
        assert dashboard.anonymous().get("/api/me").status_code == 401
        dashboard.node()
        claimed = ana.patch("/api/me", json={"email": "boss@lab.example"})
        assert claimed.status_code == 403 and "ask an admin" in claimed.json()["detail"]["message"]
        assert ana.patch("/api/me", json={"email": "ana@lab.example"}).status_code == 200
        run_id = dashboard.launch()
        with dashboard.watching(run_id, **{HEADER: "ana@lab.example", "Origin": dashboard.url}) as page:
            page.subscribe()
            assert dashboard.http.delete("/api/users/ana").status_code == 200
            with pytest.raises(ConnectionClosed):
                while True:
                    page.socket.recv(timeout=LIMIT_S)
        dashboard.pass_by(3)
        assert ana.get("/api/me").status_code in (401, 403)
        assert [user["name"] for user in dashboard.http.get("/api/users").json()] == ["owner"]


def test_whom_another_dashboard_has_removed_is_out(tmp_path: Path) -> None:
    with running(tmp_path / "data", trusted_proxies=["127.0.0.1"], proxy_user_header=HEADER) as dashboard:
        headers = {HEADER: "ana@lab.example", "Origin": dashboard.url}
        assert dashboard.anonymous(**headers).get("/api/me").json()["name"] == "ana"
        dashboard.node()
        with dashboard.watching(dashboard.launch(), **headers) as page:
            page.subscribe()
            removal.remove(dashboard.service.store, "ana", dashboard.service.clock())
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    page.socket.recv(timeout=LIMIT_S)
            assert closed.value.rcvd is not None and closed.value.rcvd.reason == "signed out"


def test_nobody_else_is_believed(tmp_path: Path) -> None:
    elsewhere = {"trusted_proxies": ["10.9.9.9"], "proxy_user_header": HEADER}
    with running(tmp_path / "data", **elsewhere) as dashboard:
        assert dashboard.anonymous(**{HEADER: "ana@lab.example"}).get("/api/me").status_code == 401
        assert [user["name"] for user in dashboard.http.get("/api/users").json()] == ["owner"]
    with running(tmp_path / "other", trusted_proxies=["127.0.0.1"]) as dashboard:
        assert dashboard.anonymous(**{"X-Forwarded-Email": "ana@lab.example"}).get("/api/me").status_code == 401
    with pytest.raises(ValidationError, match="RANKZERO_TRUSTED_PROXIES"):
        Settings(data=tmp_path, proxy_user_header=HEADER)
