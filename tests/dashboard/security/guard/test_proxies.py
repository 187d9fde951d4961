"""Headers of proxies count only from listed addresses, and nobody else can choose an address or a scheme."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sqlalchemy import select
from starlette.requests import HTTPConnection
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from dashboard.security.proxies import ForwardedHeaders, Origins, TrustedProxies, is_https
from dashboard.settings import Settings
from db.models import AuditEntry
from domain.people.rights import OWNER
from tests.dashboard.in_process import connected
from tests.dashboard.running import running

FORGED = [(b"x-forwarded-for", b"9.9.9.9"), (b"x-forwarded-proto", b"https"), (b"x-real-ip", b"9.9.9.9")]
FORGED += [(b"forwarded", b"for=9.9.9.9"), (b"x-forwarded-email", b"boss@lab.example"), (b"accept", b"*/*")]


def passed_on(proxies: list[str], peer: str, headers: list[tuple[bytes, bytes]], kind: str = "http") -> dict[str, Any]:
    """The scope that the application gets."""
    scopes = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scopes.append(scope)

    scope = {"type": kind, "scheme": {"http": "http", "websocket": "ws"}[kind], "client": (peer, 5000)}
    middleware = ForwardedHeaders(app, TrustedProxies(proxies))
    asyncio.run(middleware(scope | {"headers": list(headers)}, None, None))  # type: ignore[arg-type]
    return dict(scopes[0])


@pytest.mark.parametrize("proxies", [[], ["10.0.0.0/8"], ["127.0.0.2"]])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_headers_of_anybody_else_are_removed(proxies: list[str], kind: str) -> None:
    scope = passed_on(proxies, "127.0.0.1", FORGED, kind)
    assert scope["headers"] == [(b"accept", b"*/*")]
    assert scope["client"] == ("127.0.0.1", 5000) and not is_https(scope)


def test_a_listed_proxy_names_scheme_client_and_person() -> None:
    scope = passed_on(["127.0.0.1"], "127.0.0.1", FORGED)
    assert scope["scheme"] == "https" and is_https(scope) and scope["client"] == ("9.9.9.9", 0)
    assert (b"x-forwarded-email", b"boss@lab.example") in scope["headers"]
    assert passed_on(["::1"], "::1", FORGED, "websocket")["scheme"] == "wss"
    assert passed_on(["10.0.0.0/8"], "::ffff:10.1.2.3", FORGED)["client"] == ("9.9.9.9", 0)
    assert passed_on(["127.0.0.1"], "127.0.0.1", [])["client"] == ("127.0.0.1", 5000)


@pytest.mark.parametrize("scheme", ["", "ftp", "javascript", "https, http"])
def test_odd_schemes_change_nothing(scheme: str) -> None:
    scope = passed_on(["127.0.0.1"], "127.0.0.1", [(b"x-forwarded-proto", scheme.encode())])
    assert scope["scheme"] == "http"


@pytest.mark.parametrize(
    ("forwarded_for", "client"),
    [
        (["1.1.1.1, 9.9.9.9"], "9.9.9.9"),  # what its client had written itself stands before
        (["1.1.1.1", "9.9.9.9"], "9.9.9.9"),
        (["1.1.1.1, 9.9.9.9, 10.0.0.7"], "9.9.9.9"),  # two proxies, both listed
        (["10.0.0.8, 10.0.0.7"], "10.0.0.8"),
        (["9.9.9.9:4711"], "9.9.9.9"),
        (["[2001:db8::1]:4711"], "2001:db8::1"),
        (["2001:db8::1"], "2001:db8::1"),
        (["::ffff:9.9.9.9"], "9.9.9.9"),
        (["9.9.9.9, unknown"], "10.0.0.1"),
        (["evil, 10.0.0.7"], "10.0.0.7"),
        ([""], "10.0.0.1"),
        ([], "10.0.0.1"),
    ],
)
def test_the_client_is_the_last_address_that_is_no_proxy(forwarded_for: list[str], client: str) -> None:
    assert TrustedProxies(["10.0.0.0/24"]).client_address("10.0.0.1", forwarded_for) == client


def test_addresses_and_networks_are_listed_and_nothing_else(tmp_path: Path) -> None:
    proxies = TrustedProxies(["127.0.0.1", "10.1.2.3/16", "fd00::/8"])
    assert all(map(proxies.is_trusted, ["127.0.0.1", "10.1.255.1", "fd00::2%eth0", "::ffff:127.0.0.1"]))
    assert not any(map(proxies.is_trusted, ["127.0.0.2", "10.2.0.1", "::1", "", "testclient", "fe80::1%eth0"]))
    for text in ("*", "nginx", "10.0.0.0/33", "0.0.0.0/0", "::/0", "10.0.0.1;"):
        with pytest.raises(ValidationError, match="must be addresses or networks"):
            Settings(data=tmp_path, trusted_proxies=text)  # type: ignore[arg-type]
    settings = Settings(data=tmp_path, trusted_proxies=" 10.0.0.1 , ::1,")  # type: ignore[arg-type]
    assert settings.trusted_proxies == ["10.0.0.1", "::1"]


@pytest.mark.parametrize(("listed", "scheme"), [([], "http"), (["127.0.0.1"], "https")])
def test_links_have_the_scheme_of_whom_we_believe(tmp_path: Path, listed: list[str], scheme: str) -> None:
    with running(tmp_path / "data", trusted_proxies=listed) as site:
        site.node()
        headers = site.bearer | {"X-Forwarded-Proto": "https", "X-Forwarded-For": "9.9.9.9"}
        spec = {"target": "image_classifier", "gpus_per_node": 1}
        launched = site.http.post("/api/runs", json=spec, headers=headers).json()
        assert launched["url"].startswith(f"{scheme}://127.0.0.1:")
        link = site.http.post("/api/shared-links", json={"runs": [launched["id"]]}, headers=headers).json()
        assert link["url"].startswith(f"{scheme}://127.0.0.1:")


TLS = {"X-Forwarded-Proto": "https"}


def test_cookies_under_https_are_secure_and_of_this_host_alone(tmp_path: Path) -> None:
    with running(tmp_path / "data", trusted_proxies=["127.0.0.1"]) as site:
        cookie = site.anonymous().get("/", params={"token": site.token}, headers=TLS).headers["set-cookie"]
        assert cookie.startswith("__Host-rankzero-") and "domain" not in cookie.lower()
        assert {"secure", "httponly", "samesite=lax", "path=/"} <= set(cookie.lower().split("; "))
        session = {"Cookie": cookie.partition(";")[0]}
        assert site.anonymous().get("/api/nodes", headers=TLS | session).status_code == 200
        assert site.anonymous().get("/api/nodes", headers=session).status_code == 401  # nor does http take it
        plain = site.anonymous().get("/", params={"token": site.token}).headers["set-cookie"]
        assert plain.startswith("rankzero-") and "secure" not in plain.lower()
        session = {"Cookie": plain.partition(";")[0]}
        assert site.anonymous().get("/api/nodes", headers=TLS | session).status_code == 401
        origin = {"Origin": site.url.replace("http:", "https:"), "Sec-Fetch-Site": "same-origin"}
        out = site.anonymous().post("/logout", headers=TLS | origin | {"Cookie": cookie.partition(";")[0]})
        assert (
            out.status_code == 204 and out.headers["set-cookie"].startswith("__Host-") and "Secure" in str(out.headers)
        )


@pytest.mark.parametrize(
    ("host", "scheme", "is_sent"),
    [
        ("rankzero.example.com", "https", True),
        ("rankzero.example.com", "http", False),
        ("rankzero.example.com:8443", "https", False),  # browsers would no longer reach what else that host serves
        ("127.0.0.1", "https", False),
        ("localhost", "https", False),
    ],
)
def test_browsers_stay_with_https_where_the_host_is_ours(tmp_path: Path, host: str, scheme: str, is_sent: bool) -> None:
    settings = {"trusted_proxies": ["127.0.0.1"], "allowed_hosts": ["rankzero.example.com"]}
    with running(tmp_path / "data", **settings) as site:
        answer = site.anonymous().get("/login", headers={"Host": host, "X-Forwarded-Proto": scheme})
        assert answer.status_code == 200 and ("strict-transport-security" in answer.headers) == is_sent


@pytest.mark.parametrize(("listed", "address"), [([], "127.0.0.1"), (["127.0.0.1"], "203.0.113.9")])
def test_the_audit_log_names_the_clients_own_address(tmp_path: Path, listed: list[str], address: str) -> None:
    with running(tmp_path / "data", trusted_proxies=listed) as site:
        sent = {"X-Forwarded-For": "198.51.100.1, 203.0.113.9"}
        assert site.http.put("/api/secrets/HF_TOKEN", json={"value": "hf_1234567890"}, headers=sent).is_success
        with site.service.store.read() as session:
            assert set(session.scalars(select(AuditEntry.address))) == {address}


@pytest.mark.parametrize("public_url", [None, "https://rankzero.example.com", "https://elsewhere.example.com"])
@pytest.mark.parametrize("spoken", ["http", "https"])
@pytest.mark.parametrize("origin", ["http", "https"])
def test_page_of_another_scheme_is_another_sites(tmp_path: Path, public_url: str, spoken: str, origin: str) -> None:
    host = "rankzero.example.com"
    settings = {"trusted_proxies": ["127.0.0.1"], "allowed_hosts": [host], "public_url": public_url}
    with running(tmp_path / "data", **settings) as site:
        is_ours = origin == spoken or public_url == f"{origin}://{host}"
        name = site.service.credentials.cookie_name_for(spoken == "https")
        cookie = f"{name}={site.service.sessions.begin(OWNER, 'password')}"
        page = {"Host": host, "Origin": f"{origin}://{host}", "X-Forwarded-Proto": spoken}
        signed_in = page | {"Cookie": cookie}
        form = site.anonymous(**page).post("/login", data={"token": site.token})
        changed = site.anonymous(**signed_in).put("/api/views", json={"name": "mine"})
        assert (form.status_code, changed.status_code) == ((303, 200) if is_ours else (403, 403))
        invitation = site.http.post("/api/invitations", json={"email": "new@lab.example"}).json()["link"].split("/")[-1]
        accepted = site.anonymous(**page).post(f"/invite/{invitation}", data={})
        assert accepted.status_code == (422 if is_ours else 403)
        headers = {name: value for name, value in signed_in.items() if name != "Host"}
        with (
            connected(site.url) as sock,
            nullcontext() if is_ours else pytest.raises(InvalidStatus, match="403"),
            connect(f"ws://{host}/api/live", sock=sock, additional_headers=headers, close_timeout=2),
        ):
            assert is_ours


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://HOST", "host:80", True),
        ("http://host:80", "host", True),
        ("http://host:443", "host", False),
        ("https://host", "host:443", False),
        ("http://[::1]:8765", "[::1]:8765", True),
        ("http://host:8765", "host:8766", False),
        ("null", "host", False),
        ("http://", "host", False),
        ("http://host:x", "host", False),
        ("ws://host", "host", False),
        ("http://host.", "host", False),
    ],
)
def test_origin_is_scheme_host_and_port(origin: str, host: str, is_own: bool) -> None:
    scope = {"type": "http", "scheme": "http", "headers": [(b"host", host.encode())]}
    assert Origins().is_own(origin, HTTPConnection(scope)) is is_own
