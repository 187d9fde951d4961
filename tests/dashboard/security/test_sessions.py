"""Signing out: the cookie is worth nothing any more, wherever it was copied to, and its WebSockets close."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from dashboard.security.sign_ins import Sessions
from dashboard.security.token_files import COOKIE_LIFETIME_S
from tests.dashboard.running import LIMIT_S, Running


def cookie_of(shared: Running) -> str:
    credentials = shared.service.credentials
    return f"{credentials.cookie_name}={credentials.cookie(shared.service.clock())}"


def browser(shared: Running, cookie: str) -> httpx2.Client:
    return shared.anonymous(Cookie=cookie, Origin=shared.url)


def test_signing_out_ends_the_session_and_no_other(shared: Running) -> None:
    mine, other = cookie_of(shared), cookie_of(shared)
    assert mine != other
    answer = browser(shared, mine).post("/logout")
    assert answer.status_code == 204
    assert "max-age=0" in answer.headers["set-cookie"].lower()
    assert browser(shared, mine).get("/api/runs").status_code == 401
    assert browser(shared, mine).post("/logout").status_code == 401
    assert browser(shared, other).get("/api/runs").status_code == 200


def test_the_login_page_says_that_one_is_signed_out(shared: Running) -> None:
    assert "You are signed out" in shared.anonymous().get("/login?signed-out").text
    assert "You are signed out" not in shared.anonymous().get("/login").text


@pytest.mark.parametrize("origin", ["http://evil.example", "null", None])
def test_another_site_cannot_sign_out(shared: Running, origin: str | None) -> None:
    cookie = cookie_of(shared)
    headers = {"Cookie": cookie} | ({"Origin": origin} if origin else {})
    assert shared.anonymous(**headers).post("/logout").status_code == 403
    assert browser(shared, cookie).get("/api/runs").status_code == 200


def test_websockets_of_the_session_are_closed_and_refused(shared: Running) -> None:
    mine, other = cookie_of(shared), cookie_of(shared)
    run_id = shared.launch()
    url = shared.url.replace("http", "ws") + f"/api/live?run={run_id}"

    def opened(cookie: str):
        return connect(url, additional_headers={"Cookie": cookie, "Origin": shared.url}, proxy=None)

    with opened(mine) as ending, opened(other) as staying:
        browser(shared, mine).post("/logout")
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                ending.recv(timeout=LIMIT_S)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
        staying.send('{"type": "subscribe", "since": null}')
        assert staying.recv(timeout=LIMIT_S)
    with pytest.raises(InvalidStatus) as refused:
        opened(mine)
    assert refused.value.response.status_code == 401


def test_a_restart_brings_no_session_back_and_old_ones_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "signed-out"
    Sessions(path, 1_000.0).end("cookie", 1_000.0)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "cookie" not in path.read_text()
    assert Sessions(path, 2_000.0).is_ended("cookie")
    assert not Sessions(path, 2_000.0).is_ended("another")
    assert not Sessions(path, 1_001.0 + COOKIE_LIFETIME_S).is_ended("cookie")
