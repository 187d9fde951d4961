"""Behind Debian's nginx with TLS, as the documents configure it: everything works, and the checks still hold."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import uvicorn
from starlette.responses import JSONResponse
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from dashboard.security.proxies import ForwardedHeaders, TrustedProxies
from domain.network.trust import tls_context
from tests.dashboard.certificates import Pair, self_signed
from tests.dashboard.nginx import nginx
from tests.dashboard.running import Page, Running, running
from tests.end_to_end.product import wait_for

NAME = "rankzero.test"
OCTETS = {"Content-Type": "application/octet-stream"}


@dataclass
class Proxied:
    """A dashboard, and the address of nginx in front of it."""

    site: Running
    url: str
    pair: Pair

    @property
    def tls(self) -> Any:
        """What trusts nginx's certificate."""
        return tls_context(self.url, httpx2.create_ssl_context, self.pair.certificate)

    def client(self, **headers: str) -> httpx2.Client:
        """A browser or program that reaches it through nginx."""
        http = httpx2.Client(base_url=self.url, headers=headers, verify=self.tls, trust_env=False, timeout=60)
        return self.site.closing.enter_context(closing(http))

    def session(self) -> dict[str, str]:
        """Sign in by the address that was printed; returns the headers of a page's own requests."""
        answer = self.client().get("/", params={"token": self.site.token})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-rankzero-") and {"Secure", "HttpOnly"} <= set(cookie.split("; "))
        return {"Cookie": cookie.partition(";")[0], "Origin": self.url, "Sec-Fetch-Site": "same-origin"}

    def channel(self, run_id: str, headers: dict[str, str]) -> Any:
        """Open the live channel of a run."""
        url = self.url.replace("https", "wss") + f"/api/live?run={run_id}"
        return connect(url, additional_headers=headers, proxy=None, open_timeout=60, close_timeout=2, ssl=self.tls)


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("proxied")
    pair = self_signed(folder)
    settings = {"trusted_proxies": ["127.0.0.1"], "allowed_hosts": [NAME]}
    with running(folder / "data", on_port=True, **settings) as site:
        port = urlsplit(site.url).port
        assert port is not None
        with nginx(folder / "nginx", pair, port) as url:
            yield Proxied(site, url, pair)


def test_pages_links_uploads_and_downloads_pass(proxied: Proxied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKZERO_CA_FILE", str(proxied.pair.certificate))
    page = proxied.client(**proxied.session())
    code = os.urandom(3_000_000)  # more than nginx takes by default
    uploaded = page.post("/api/uploads", params={"name": "a.py"}, content=b"pass\n" * 500_000, headers=OCTETS)
    assert uploaded.status_code == 201, uploaded.text
    behind = Running(proxied.site.service, proxied.url)
    with behind.closing:
        node = behind.node()  # a worker that joins through nginx
        launched = page.post("/api/runs", json={"target": "image_classifier", "gpus_per_node": 1}).json()
        assert launched["url"].startswith(f"{proxied.url}/run?id=")
        checkpoint = node.store_checkpoint(node.task(), code)
        file = f"/api/checkpoints/{checkpoint}/file"
        assert page.get(file).content == code
        part = page.get(file, headers={"Range": "bytes=2999990-"})
        assert (part.status_code, part.content) == (206, code[-10:])
        with proxied.channel(launched["id"], proxied.session()) as socket:
            channel = Page(socket)
            channel.subscribe()
            node.log_points(node.task(), 0, loss=[(1, 0.5, 1.0)])
            channel.next_of("series")
        with (
            pytest.raises(InvalidStatus, match="403"),
            proxied.channel(launched["id"], proxied.session() | {"Origin": "https://evil.example"}),
        ):
            pass
    assert page.post("/api/shared-links", json={"runs": [launched["id"]]}).json()["url"].startswith(proxied.url)
    assert page.post("/logout").status_code == 204
    assert page.get("/api/runs").status_code == 401


def test_host_origin_and_fetch_site_are_checked_as_without_nginx(proxied: Proxied) -> None:
    session = proxied.session()
    spec = {"target": "image_classifier"}
    for more, status in (
        ({"Host": "evil.example"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ):
        answer = proxied.client(**session | more).post("/api/preview", json=spec)
        assert answer.status_code == status, (more, answer.text)
    assert proxied.client(**session).post("/api/preview", json=spec).status_code == 200
    named = proxied.client(Host=NAME).get("/login")
    assert named.status_code == 200 and named.headers["strict-transport-security"] == "max-age=2592000"


def test_nobody_chooses_an_address_or_a_person_through_nginx(tmp_path: Path) -> None:
    forged = {"X-Forwarded-For": "9.9.9.9", "X-Forwarded-Email": "boss@lab.example", "X-Forwarded-Proto": "http"}
    forged |= {"X-Forwarded-Secret": "guessed", "X_Forwarded_Email": "boss@lab.example"}
    pair = self_signed(tmp_path)
    with echoing(TrustedProxies(["127.0.0.1"])) as port, nginx(tmp_path / "nginx", pair, port) as url:
        verify: Any = tls_context(url, httpx2.create_ssl_context, pair.certificate)
        scope = httpx2.get(url, headers=forged, verify=verify, trust_env=False, timeout=60).json()
    assert (scope["scheme"], scope["client"]) == ("https", "127.0.0.1")
    assert {name: value for name, value in scope["headers"].items() if "forwarded" in name} == {
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-proto": "https",
    }


@contextmanager
def echoing(proxies: TrustedProxies) -> Iterator[int]:
    """Serve an application that answers with what it gets behind the middleware; yields its port."""

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen = {"scheme": scope["scheme"], "client": scope["client"][0], "headers": headers}
        await JSONResponse(seen)(scope, receive, send)

    app = ForwardedHeaders(echo, proxies)
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", proxy_headers=False, log_level="critical"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive(), "the application to start")
        yield int(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()


def test_with_a_secret_only_the_proxy_is_believed(tmp_path: Path) -> None:
    secret = tmp_path / "proxy-secret"
    pair = self_signed(tmp_path)
    with running(tmp_path / "data", on_port=True, trusted_proxies=["127.0.0.1"], proxy_secret_file=secret) as site:
        forged = {"X-Forwarded-Proto": "https", "X-Forwarded-Secret": "guessed"}
        for headers in ({"X-Forwarded-Proto": "https"}, forged):
            cookie = site.anonymous().get("/", params={"token": site.token}, headers=headers).headers["set-cookie"]
            assert "Secure" not in cookie
        port = urlsplit(site.url).port
        assert port is not None
        with nginx(tmp_path / "nginx", pair, port, secret.read_text().strip()) as url:
            assert Proxied(site, url, pair).session()
