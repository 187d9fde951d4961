"""Bodies and addresses no program of ours would send, and senders who stop in the middle or never come on."""

from __future__ import annotations

import contextlib
import json
import logging
import re
import socket
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dashboard.app import slow_connections
from tests.dashboard.browsed import browsed, opened
from tests.dashboard.in_process import connected
from tests.dashboard.running import LIMIT_S, FakeNode, Running, bundle_of, running
from tests.end_to_end.product import wait_for

HUGE = 10**30
ODD = [
    HUGE,
    -HUGE,
    2**63,
    "\ud800",
    "a\udc00b",
    "\ud800\ud800",
    None,
    True,
    [],
    {},
    "x",
    -1,
    1.5,
    "1e400",
    "\0",
]
FILE = "path=logs/rank0.out&generation=0&offset=0"
FILLED = {"fence": "1", "node_rank": "0", "check_id": "1", "checkpoint_id": "1", "part": "1", "file_id": "1"}


def described(dashboard: Running) -> dict[str, Any]:
    """The API as it describes itself."""
    return dict(dashboard.http.get("/api/openapi.json").json())


def properties(api: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """The names of a body's fields."""
    if "$ref" in schema:
        schema = api["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return list(schema.get("properties", {}))


def address(path: str, run_id: str) -> str:
    """A path of the API with something in each of its places."""
    filled = {"run_id": run_id, "sha256": "0" * 64, "node": "n0", **FILLED}
    return re.sub(r"{(\w+)}", lambda name: filled.get(name[1], "1"), path)


def bodies(api: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Every route that takes JSON: method, path, and the fields of its body."""
    answered = []
    for path, methods in api["paths"].items():
        for method, about in methods.items():
            content = about.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                answered.append((method, path, properties(api, content["application/json"]["schema"])))
    return answered


def speaker(dashboard: Running, node: FakeNode, path: str) -> httpx2.Client:
    """Who may ask at that address."""
    if not path.startswith("/api/worker/"):
        return dashboard.http
    token = dashboard.join_token if path.endswith("/register") else node.identity.token
    return dashboard.anonymous(Authorization=f"Bearer {token}")


def test_no_odd_value_in_any_field_of_any_route_is_a_mistake_of_ours(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    api = described(dashboard)
    routes = bodies(api)
    assert len(routes) > 12
    for method, path, fields in routes:
        http, url = speaker(dashboard, node, path), address(path, run_id)
        for field in fields or ["x"]:
            for value in ODD:
                body = json.dumps({"target": "image_classifier", field: value})
                answer = http.request(method, url, content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code < 500, (method, path, field, value, answer.text)


@pytest.mark.parametrize("value", [HUGE, {"deep": [HUGE]}, "\ud800"])
def test_unstorable_value_is_refused_in_every_field(dashboard: Running, node: FakeNode, value: Any) -> None:
    for method, path, _ in bodies(described(dashboard)):
        if path.endswith("/load"):  # it takes only what it knows
            continue
        body = json.dumps({"x": value})
        answer = speaker(dashboard, node, path).request(
            method, address(path, "abcdefghij"), content=body, headers={"Content-Type": "application/json"}
        )
        assert answer.status_code in (403, 404, 409, 422), (path, answer.text)


@pytest.mark.parametrize("number", [HUGE, pytest.param(-HUGE, marks=pytest.mark.long), 2**63])
def test_numbers_of_an_address_beyond_64_bits_are_refused(dashboard: Running, node: FakeNode, number: int) -> None:
    run_id = dashboard.launch()
    api = described(dashboard)
    for path, methods in api["paths"].items():
        for method, about in methods.items():
            url, http = address(path, run_id), speaker(dashboard, node, path)
            for one in about.get("parameters", []):
                if "integer" not in json.dumps(one["schema"]) and one["in"] != "path":
                    continue
                asked = (
                    url if one["in"] == "query" else address(path.replace(f"{{{one['name']}}}", str(number)), run_id)
                )
                params = {one["name"]: str(number)} if one["in"] == "query" else {}
                answer = http.request(method, asked, params=params)
                assert answer.status_code < 500, (method, asked, params, answer.text)


def test_a_number_and_a_field_are_named(dashboard: Running) -> None:
    answer = dashboard.http.post("/api/runs", json={"target": "x", "labels": {"a": HUGE}})
    assert answer.json()["detail"] == {
        "field": "labels",
        "message": "labels.a must be a number of at most 64 bits.",
    }
    content = b'{"target": "\\ud800"}'
    answer = dashboard.http.post("/api/runs", content=content, headers={"Content-Type": "application/json"})
    assert "unpaired surrogate" in answer.json()["detail"]["message"]
    assert dashboard.http.post("/api/runs").json()["detail"]["message"] == "The body is required."


def test_points_must_end_behind_their_start(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    task = node.task()
    http = speaker(dashboard, node, "/api/worker/")
    batch = {"path": "work/e", "generation": 0, "start": 10, "end": 20, "counts": {}}

    def refusal(**changes: Any) -> Any:
        sent = http.post("/api/worker/pieces", content=bundle_of(task, batch | changes))
        (answer,) = sent.json()["answers"]
        assert answer["status"] == 422, sent.text
        return answer["body"]["detail"]

    refusal(counts={"a": HUGE})
    refusal(counts={"a": 1, "b": -1})
    refusal(end=HUGE)
    assert refusal(end=9) == {"field": "end", "message": "end must be at least start, 10, got 9."}


# -- addresses that nobody knows -----------------------------------------------------------------


def test_unknown_addresses_of_the_api_are_404_in_json_also_behind_the_pages(tmp_path: Path) -> None:
    with browsed(opened(tmp_path / "data")) as it, httpx2.Client(base_url=it.url, trust_env=False, timeout=60) as http:
        http.headers["Authorization"] = f"Bearer {it.service.credentials.user}"
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            for path in ("/api", "/api/", "/api/nothing", "/api/runs/abcdefghij/nothing"):
                answer = http.request(method, path)
                assert answer.status_code == 404, (method, path, answer.text[:100])
                assert "no such address" in answer.json()["detail"]["message"]
        assert http.head("/api/nothing").status_code == 404
        wrong = http.put("/api/runs")
        assert wrong.status_code == 405 and "GET" in wrong.headers["allow"] and wrong.json()["detail"]
        assert "text/html" in http.get("/").headers["content-type"]
        assert http.get("/apiary").status_code == 404


# -- senders who go, and senders who do not come on ----------------------------------------------


def head(path: str, token: str | None = None, method: str = "POST", length: int = 1000) -> bytes:
    """The head of a request with a body."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {length}",
    ]
    lines += [f"Authorization: Bearer {token}"] if token else []
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(
    "path", ["/login", "/api/runs", "/api/preview", "/api/worker/load", "/api/worker/pieces", "/api/uploads"]
)
def test_a_body_that_is_broken_off_leaves_no_traceback(
    dashboard: Running, node: FakeNode, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    dashboard.launch()
    token = None if path == "/login" else node.identity.token if "worker" in path else dashboard.token
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            with connected(dashboard.url, LIMIT_S) as sender:
                sender.sendall(head(path, token) + b"{")
        server_answers(dashboard)
        wait_for(lambda: not others_are_served(dashboard), "the requests to end")
    warnings_logged = [
        r for r in caplog.records if r.levelno >= logging.WARNING and r.name.startswith(("uvicorn", "rankzero"))
    ]
    assert [r for r in warnings_logged if r.exc_info] == []
    assert len(warnings_logged) <= 3


def server_answers(it: Running) -> None:
    """It has looked at what came before."""
    assert it.http.get("/api/info").status_code == 200


def others_are_served(it: Running) -> bool:
    """Is any request but our own under way?"""
    import gc

    from dashboard.app.server import Server

    servers = [
        one
        for one in gc.get_objects()
        if issubclass(type(one), Server) and one.started and not one.should_exit  # isinstance asks lazy objects
    ]
    return any(task for server in servers for task in server.server_state.tasks)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A dashboard whose deadlines are a twentieth."""
    monkeypatch.setattr(slow_connections, "CHECK_EVERY_S", 0.5)
    with running(tmp_path / "data", on_port=True) as it:
        yield it


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    answered = b""
    while piece := connection.recv(65536):
        answered += piece
    return answered


@pytest.mark.parametrize("sent", [b"", b"GET /api/ru", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_request_whose_head_never_ends_is_ended(hurried: Running, sent: bytes) -> None:
    with connected(hurried.url, LIMIT_S) as sender:
        sender.sendall(sent)
        assert all_of(sender).startswith(b"HTTP/1.1 408 ")


def test_dripping_does_not_put_the_end_of_the_head_off(hurried: Running) -> None:
    with connected(hurried.url, LIMIT_S) as sender:
        sender.sendall(b"GET / HTTP/1.1\r\n")
        sender.settimeout(0.01)
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            try:
                sender.sendall(b"X-A: b\r\n")
                if sender.recv(100):
                    return
            except TimeoutError:
                continue
            except ConnectionError:
                return
        raise AssertionError("it is still open")


def test_a_second_request_has_the_same_deadline(hurried: Running) -> None:
    with connected(hurried.url, LIMIT_S) as sender:
        sender.sendall(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sender.recv(65536).startswith(b"HTTP/1.1 200 ")
        sender.sendall(b"GET /login HT")
        assert b"HTTP/1.1 408 " in all_of(sender)


@pytest.mark.parametrize("path", ["/login", "/api/runs"])
def test_a_body_that_does_not_come_on_is_ended(hurried: Running, path: str, caplog: pytest.LogCaptureFixture) -> None:
    with connected(hurried.url, LIMIT_S) as sender:
        sender.sendall(head(path, hurried.token) + b"{")
        assert b"HTTP/1.1 408 " in all_of(sender)
    assert [record for record in caplog.records if record.exc_info] == []


def test_slow_senders_and_those_who_wait_for_an_answer_live(hurried: Running, node_of_hurried: FakeNode) -> None:
    run_id = hurried.launch(nodes=1)
    assert node_of_hurried.assignment().run_id == run_id
    version = node_of_hurried.client.desired_state(None, 0).version
    with hurried.watching(run_id) as page:
        page.subscribe()
        page.next_of("run")
        node_of_hurried.client.desired_state(version, 3)  # a long poll: six looks
        body = json.dumps({"target": "image_classifier", "name": "x" * 150, "args": ["y" * 15_000]}).encode()
        with connected(hurried.url, LIMIT_S) as sender:
            sender.sendall(head("/api/preview", hurried.token, length=len(body)))
            for start in range(0, len(body), 500):
                sender.sendall(body[start : start + 500])
                time.sleep(0.03)  # a rate, not a wait: some 17 kB a second, where 2 kB are asked for
            assert sender.recv(100).startswith(b"HTTP/1.1 200 ")
        hurried.service.stop(run_id)
        page.next(lambda message: message["type"] == "run" and message["run"]["stop_requested_at"] is not None)


@pytest.mark.real
def test_who_stops_reading_a_download_is_let_go_and_who_reads_slowly_is_not(
    hurried: Running, node_of_hurried: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(slow_connections.MAX_SLOW_CHECKS, "answer", 6)
    hurried.launch()
    content = bytes(24 * 1024 * 1024)
    stored = node_of_hurried.store_checkpoint(node_of_hurried.task(), content, "work/checkpoints/a.pt")
    headers = f"Host: localhost\r\nAuthorization: Bearer {hurried.token}"
    asked = f"GET /api/checkpoints/{stored}/file HTTP/1.1\r\n{headers}\r\n\r\n"
    with connected(hurried.url, LIMIT_S) as idle, connected(hurried.url, LIMIT_S) as slow:
        for reader in (idle, slow):
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            reader.sendall(asked.encode())
        read = 0
        while read < len(content):  # at a rate, not a wait: some looks see little of it taken
            piece = slow.recv(262_144)
            assert piece
            read += len(piece)
            time.sleep(0.02)
        assert whole_of(idle) < len(content)


def whole_of(connection: socket.socket) -> int:
    """How many bytes come until the other side ends it."""
    count = 0
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            count += len(piece)
    return count


@pytest.fixture
def node_of_hurried(hurried: Running) -> FakeNode:
    return hurried.node("n1")
