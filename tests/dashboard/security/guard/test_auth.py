"""Who gets in: every route and WebSocket without a credential, with a wrong one, from another site."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi.routing import APIWebSocketRoute
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from websockets.exceptions import InvalidStatus

from dashboard.app.server import create_app
from dashboard.security.guard.auth import PUBLIC, is_host_allowed
from dashboard.security.keys.token_files import Credentials, TokenUnusable
from dashboard.security.signing_in.login import local_path
from dashboard.service.service import Service
from dashboard.settings import Settings
from tests.dashboard.running import FakeNode, Running

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
UNPREFIXED = ("/api", "/assets", "/device", "/invite", "/login", "/metrics", "/shared", "/tensorboard")
WRONG_TOKENS = ("", "x", "é" * 40, "a" * 100_000, "null", "Bearer", "../token")


def leaves(routes: list[BaseRoute]) -> Iterator[BaseRoute]:
    """All routes, included routers' too."""
    for route in routes:
        below = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", None)
        if below and not isinstance(route, Route):
            yield from leaves(list(below))
        else:
            yield route


def filled(path: str) -> str:
    return path.replace("{run_id}", "abcdefghij").replace("{name}", "charts/charts.js").replace("{", "").replace(
        "}", ""
    ).replace("fence", "1").replace("node_rank", "0").replace("checkpoint_id", "1")  # fmt: skip


def paths(shared: Running, tmp_path: Path) -> tuple[set[str], set[str]]:
    """The paths of all routes, and of all WebSockets."""
    service = Service.open(Settings(data=tmp_path / "other"))
    try:
        app = create_app(service.settings, service, with_pages=False)
        routes = list(leaves(app.routes))
    finally:
        service.close()
    sockets = (WebSocketRoute, APIWebSocketRoute)
    prefix = "/api"
    http = {r.path for r in routes if isinstance(r, Route)}
    live = {r.path for r in routes if isinstance(r, sockets)}
    assert not any(isinstance(r, Mount) for r in routes)
    return (
        {filled(p if p.startswith(UNPREFIXED) else prefix + p) for p in http},
        {filled(p if p.startswith("/api") else prefix + p) for p in live},
    )


def test_no_route_answers_without_a_token(shared: Running, tmp_path: Path) -> None:
    http, sockets = paths(shared, tmp_path)
    assert {"/api/runs", "/api/worker/register", "/api/health", "/api/openapi.json", "/login"} <= http
    assert "/api/worker/attempts/1/tasks/0/report" in http and "/api/worker/pieces" in http
    assert "/tensorboard/abcdefghij/" in http
    assert sockets == {"/api/live"}
    streamlit = {"/", "/run", "/_stcore/health", "/_stcore/upload_file/a/b", "/media/x", "/static/js/x.js"}
    anonymous = shared.anonymous()
    for path in sorted(http | streamlit | {"/nothing", "/api/nothing", "//evil.example"}):
        for method in METHODS:
            answer = anonymous.request(method, path)
            if path in ("/login/provider", "/login/callback") and method in ("GET", "HEAD"):
                assert answer.status_code == 404, (method, path)  # there is no provider
            elif (method, path) in PUBLIC:
                assert answer.status_code in (200, 401, 422), (method, path)
            elif path == "/invite/secret" and method in ("GET", "HEAD", "POST"):
                assert answer.status_code in (403, 404), (method, path)
            elif path == "/shared/token" and method in ("GET", "HEAD"):
                assert answer.status_code == 404, (method, path)
            else:
                assert answer.status_code == 401, (method, path, answer.status_code)


def test_public_routes_say_nothing(shared: Running) -> None:
    anonymous = shared.anonymous()
    assert {path for _, path in PUBLIC} == {
        "/login",
        "/login/provider",
        "/login/callback",
        "/api/health",
        "/api/login-requests",
        "/api/login-requests/outcome",
    }
    assert anonymous.get("/api/health").json() == {"status": "ok"}
    assert shared.token not in anonymous.get("/login").text


@pytest.mark.parametrize("path", ["/api/live?run=x", "/_stcore/stream"])
def test_no_websocket_opens_without_a_token(shared: Running, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Origin": shared.url}):
        with pytest.raises(InvalidStatus) as refusal:
            shared.connect(path, headers)
        assert refusal.value.response.status_code == 401


@pytest.mark.parametrize("token", WRONG_TOKENS)
def test_wrong_tokens_are_all_refused_alike(shared: Running, token: str) -> None:
    if len(token) > 60_000:
        answer = shared.anonymous().get("/api/runs", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code in (400, 401, 431)
        return
    header = {"Authorization": f"Bearer {token}".strip().encode()}
    answer = shared.anonymous().get("/api/runs", headers=header)
    assert answer.status_code == 401
    assert answer.json() == shared.anonymous().get("/api/runs").json()


def test_other_schemes_do_not_get_in(shared: Running) -> None:
    for scheme in ("Basic", "Digest", ""):
        headers = {"Authorization": f"{scheme} {shared.token}".strip()}
        assert shared.anonymous().get("/api/runs", headers=headers).status_code == 401
    assert shared.http.get("/api/runs", headers={"Authorization": f"bEaReR {shared.token}"}).status_code == 200


def test_the_join_token_only_registers(shared: Running) -> None:
    joining = shared.anonymous(Authorization=f"Bearer {shared.join_token}")
    for path in ("/api/runs", "/api/worker/desired", "/api/nodes", "/", "/api/worker/register"):
        assert joining.get(path).status_code == 403, path
    assert joining.post("/api/runs", json={"target": "image_classifier"}).status_code == 403


def test_the_metrics_token_reads_metrics_and_nothing_else(shared: Running, tmp_path: Path) -> None:
    http, sockets = paths(shared, tmp_path)
    token = (shared.service.settings.data / "metrics-token").read_text().strip()
    header = {"Authorization": f"Bearer {token}"}
    scraping = shared.anonymous(**header)
    assert scraping.get("/metrics").status_code == 200
    for path in sorted(http | {"/", "/run", "/_stcore/health", "/nothing", "/metrics/", "//metrics"}):
        for method in METHODS:
            if (method, path) != ("GET", "/metrics"):
                answer = scraping.request(method, path)
                assert answer.status_code == 403, (method, path, answer.status_code)
                assert method == "HEAD" or "only reads /metrics" in answer.text, (method, path)
    for path in sorted(sockets):
        with pytest.raises(InvalidStatus) as refusal:
            shared.connect(path, header)
        assert refusal.value.response.status_code == 403
    for other in ("/run", "/metrics"):
        assert shared.anonymous().get(f"{other}?token={token}").status_code == 401
    assert shared.anonymous().post("/login", data={"token": token}).status_code == 401
    assert shared.anonymous(**shared.bearer).get("/metrics").status_code == 200
    for wrong in (shared.join_token, token[:-1], token + "x"):
        assert shared.anonymous(Authorization=f"Bearer {wrong}").get("/metrics").status_code in (401, 403)


def test_a_nodes_token_only_does_a_nodes_work(dashboard: Running, node: FakeNode) -> None:
    at_work = dashboard.anonymous(Authorization=f"Bearer {node.client.token}")
    for path in ("/api/runs", "/api/nodes", "/", "/api/docs", "/api/checkpoints/1/file", "/api/workers"):
        assert at_work.get(path).status_code == 403, path
    assert at_work.post("/api/runs", json={"target": "image_classifier"}).status_code == 403
    assert at_work.get("/api/worker/desired?wait=0").status_code == 200
    with pytest.raises(InvalidStatus):
        dashboard.connect("/api/live?run=x", {"Authorization": f"Bearer {node.client.token}"})


def test_people_do_not_speak_for_workers(shared: Running) -> None:
    assert shared.http.get("/api/worker/desired").status_code == 403
    assert shared.http.post("/api/worker/load", json={}).status_code == 403


def test_the_address_printed_at_start_becomes_a_cookie(shared: Running) -> None:
    answer = shared.anonymous().get(f"/run?id=abc&token={shared.token}&x=%20y")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/run?id=abc&x=+y"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert shared.token not in cookie
    name, _, value = cookie.partition(";")[0].partition("=")
    signed_in = shared.anonymous(Cookie=f"{name}={value}")
    assert signed_in.get("/api/runs").status_code == 200
    assert shared.anonymous(Cookie=f"{name}={value[:-1]}0x").get("/api/runs").status_code == 401
    assert shared.anonymous(Cookie=f"{name}={value}é".encode()).get("/api/runs").status_code == 401
    assert shared.anonymous(Cookie=f"{name}=").get("/api/runs").status_code == 401


def test_a_token_in_the_address_is_good_for_nothing_else(shared: Running) -> None:
    assert shared.anonymous().get(f"/api/runs?token={shared.token}").status_code == 401
    assert shared.anonymous().post(f"/run?token={shared.token}").status_code == 401
    assert shared.anonymous().get(f"/run?token={shared.join_token}").status_code == 401
    assert shared.anonymous().get("/run?token=wrong").status_code == 401


def test_the_login_page_takes_a_token(shared: Running) -> None:
    page = shared.anonymous(Accept="text/html").get("/run?id=1")
    assert page.status_code == 401
    assert 'value="/run?id=1"' in page.text
    form = shared.anonymous()
    wrong = form.post("/login", data={"token": "wrong", "next": "/run"})
    assert (wrong.status_code, "Incorrect token" in wrong.text) == (401, True)
    right = form.post("/login", data={"token": shared.token, "next": "/run"})
    assert (right.status_code, right.headers["location"]) == (303, "/run")
    assert form.get("/api/runs").status_code == 200
    foreign = form.post("/login", data={"token": shared.token}, headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "/\\evil.example", "https://evil.example", "", "evil", "/%5cevil", "/a\r\nb", "/\tb"],
)
def test_login_leads_nowhere_else(path: str) -> None:
    assert local_path(path) == "/"


def test_a_double_slash_with_a_token_leads_nowhere_else(shared: Running) -> None:
    answer = shared.anonymous().get(f"//evil.example/x?token={shared.token}")
    assert urlsplit(answer.headers.get("location", "/")).netloc == ""


@pytest.fixture
def signed_in(shared: Running) -> httpx2.Client:
    """A browser with a session, no longer telling where it is."""
    cookie = f"{shared.service.credentials.cookie_name}={shared.service.sessions.begin('owner', 'token')}"
    return shared.anonymous(Cookie=cookie)


FOREIGN = (
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://127.0.0.1:1"},
    {},
)


@pytest.mark.parametrize("headers", FOREIGN)
def test_another_sites_page_cannot_change_anything(
    shared: Running, signed_in: httpx2.Client, headers: dict[str, str]
) -> None:
    wanted = {"target": "image_classifier"}
    assert signed_in.post("/api/runs", json=wanted, headers=headers).status_code == 403
    assert signed_in.delete("/api/runs/abcdefghij", headers=headers).status_code == 403
    assert signed_in.post("/api/runs/abcdefghij/stop", headers=headers).status_code == 403
    assert signed_in.options("/api/runs", headers=headers).status_code == 403
    assert signed_in.put("/_stcore/upload_file/a/b", headers=headers).status_code == 403


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_only_json_changes_anything_with_a_cookie(shared: Running, signed_in: httpx2.Client, kind: str | None) -> None:
    headers = {"Origin": shared.url} | ({"Content-Type": kind} if kind else {})
    answer = signed_in.post("/api/runs", content=b'{"target": "image_classifier"}', headers=headers)
    assert answer.status_code == 415


def test_our_own_page_can(shared: Running, signed_in: httpx2.Client) -> None:
    own = {"Origin": shared.url, "Sec-Fetch-Site": "same-origin"}
    answer = signed_in.post("/api/preview", json={"target": "image_classifier"}, headers=own)
    assert answer.status_code == 200
    assert signed_in.post("/api/runs/abcdefghij/stop", headers=own).status_code == 404


@pytest.mark.parametrize("path", ["/api/live?run=x", "/_stcore/stream"])
@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://127.0.0.1:1"])
def test_another_sites_page_cannot_open_a_websocket(
    shared: Running, signed_in: httpx2.Client, path: str, origin: str | None
) -> None:
    headers = {"Cookie": signed_in.headers["Cookie"]} | ({"Origin": origin} if origin else {})
    with pytest.raises(InvalidStatus) as refusal:
        shared.connect(path, headers)
    assert refusal.value.response.status_code == 403


def test_our_own_page_can_open_the_live_channel(shared: Running, signed_in: httpx2.Client) -> None:
    headers = {"Cookie": signed_in.headers["Cookie"], "Origin": shared.url}
    with shared.connect("/api/live?run=x", headers):
        pass


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        ("localhost", True),
        ("LOCALHOST.:8765", True),
        ("127.0.0.1:8765", True),
        ("[::1]:80", True),
        ("192.168.1.7", True),
        ("gpu-1.example", True),
        ("gpu-1.example.:1", True),
        ("evil.example", False),
        ("gpu-1.example.evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example@localhost", False),
        ("localhost/", False),
        ("", False),
        ("2130706433", False),
        ("localhost:x", False),
    ],
)
def test_only_known_host_names_are_answered(host: str, is_allowed: bool) -> None:
    assert is_host_allowed([host], {"gpu-1.example"}) is is_allowed
    assert not is_host_allowed([host, host], {"gpu-1.example"})


def test_a_rebound_name_is_not_answered_not_even_with_the_token(shared: Running) -> None:
    for path in ("/", "/api/runs", "/api/health", f"/?token={shared.token}", "/login"):
        assert shared.http.get(path, headers={"Host": "evil.example"}).status_code == 421, path
    assert shared.http.get("/api/runs", headers={"Host": "gpu-1.example:99"}).status_code == 200
    headers = {**shared.bearer, "Host": "evil.example"}
    with pytest.raises(InvalidStatus) as refusal:
        shared.connect("/api/live?run=x", headers)
    assert refusal.value.response.status_code in (400, 421)


def test_every_answer_carries_the_headers_and_none_opens_it_to_others(shared: Running) -> None:
    for path in ("/api/runs", "/api/nothing", "/api/docs", "/assets/charts/charts.js", "/login"):
        headers = shared.http.get(path, headers={"Origin": "http://evil.example"}).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert not [name for name in headers if name.startswith("access-control")], path
        assert "server" not in headers


def test_pages_run_no_inline_script_and_those_before_the_sign_in_none(shared: Running) -> None:
    def scripts(visitor: httpx2.Client, path: str) -> str:
        policy = visitor.get(path, headers={"Accept": "text/html"}).headers["content-security-policy"]
        directives = dict(directive.strip().partition(" ")[::2] for directive in policy.split(";"))
        return directives.get("script-src", directives["default-src"])

    assert scripts(shared.http, "/run") == "'self' 'wasm-unsafe-eval' blob:"
    for path in ("/", "/login", "/invite/secret", "/shared/token"):
        assert scripts(shared.anonymous(), path) == "'none'", path


def test_bodies_that_are_too_large_end_early(shared: Running) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 1024 * 1024

    for path, size in (("/api/preview", 5_000_000), ("/api/backup", 100_000)):
        answer = shared.http.post(path, content=b" " * size, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413, path
        assert "at most" in answer.json()["detail"]["message"]
    try:
        answer = shared.http.post("/api/runs", content=endless())
    except httpx2.NetworkError:
        return  # the server answered and closed before everything was sent
    assert answer.status_code == 413


def test_token_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Credentials.load_or_create(tmp_path / "data")
    finally:
        os.umask(before)
    for name in ("token", "join-token", "metrics-token"):
        assert stat.S_IMODE((tmp_path / "data" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert Credentials.load_or_create(tmp_path / "data") == made
    assert len(made.user) >= 43
    assert made.user != made.join
    assert made.user not in repr(made)


def test_the_join_token_may_lie_where_containers_share_it(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "join-token"
    shared.parent.mkdir()
    made = Credentials.load_or_create(tmp_path / "data", shared)
    assert shared.read_text().strip() == made.join
    assert not (tmp_path / "data" / "join-token").exists()
    shared.write_text("given by somebody else, long enough\n")
    assert Credentials.load_or_create(tmp_path / "data", shared).join == "given by somebody else, long enough"


def test_an_empty_token_file_is_not_an_open_door(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(TokenUnusable, match="Delete the file"):
        Credentials.load_or_create(tmp_path)


def test_the_store_holds_no_token(dashboard: Running, node: FakeNode) -> None:
    with dashboard.service.store.write():
        pass
    stored = b"".join(p.read_bytes() for p in dashboard.service.settings.data.glob("rankzero.db*"))
    assert node.identity.node_id.encode() in stored
    for token in (dashboard.token, dashboard.join_token, node.client.token):
        assert token.encode() not in stored
