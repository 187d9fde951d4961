"""A dashboard without its pages in this process, and its clients: people, workers and open pages."""

from __future__ import annotations

import hashlib
import itertools
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from fastapi import FastAPI
from websockets.sync.client import ClientConnection, connect

from dashboard.app.server import create_app, uvicorn_config
from dashboard.app.ticks import TICK_S
from dashboard.clock import AnchoredTime
from dashboard.security.keys.certificates import ServerCertificate
from dashboard.service.service import Service
from dashboard.settings import Settings
from domain.assignments import Assignment
from domain.checkpoint_use.tasks import DONE_HERE, TaskKind
from domain.messages import Bundle, CheckpointOffer, Device, NodeFacts, PieceHead, PointBatch, TaskReport
from tests.dashboard.in_process import PortlessServer, PromptServer, connected
from tests.dashboard.passing_time import LOOK_S, PassingTime
from tests.db.templates import new_data
from tests.end_to_end.product import WITHOUT_TLS
from worker.session.client import Client, TaskRef
from worker.session.pieces import Piece, bytes_piece, deliver, points_piece

T = TypeVar("T")
LIMIT_S = 120.0
ANSWER_LIMIT_S = 120.0
"""Longer than the dashboard itself waits for anything before it answers."""
HEARD_FOR_S = 3600.0
"""How long after its last word a node of the tests is silent: they send no heartbeats, and the machine may be slow."""


class Running:
    """The dashboard, seen by a person with the token."""

    def __init__(self, service: Service, url: str, time: PassingTime | None = None) -> None:
        self.service, self.url, self._time = service, url, time
        self.token = service.credentials.user
        self.join_token = service.credentials.join
        self.bearer = {"Authorization": f"Bearer {self.token}"}
        self.closing = ExitStack()
        self.http = self.anonymous(**self.bearer)
        service.registry._clock = lambda: service.clock() + HEARD_FOR_S

    def anonymous(self, **headers: str) -> httpx2.Client:
        """Somebody without the token."""
        http = httpx2.Client(base_url=self.url, headers=headers, timeout=ANSWER_LIMIT_S, **WITHOUT_TLS)
        return self.closing.enter_context(closing(http))

    def launch(self, **spec: Any) -> str:
        """Submit a run; returns its id."""
        wanted = {"target": "image_classifier", "gpus_per_node": 1} | spec
        answer = self.http.post("/api/runs", json=wanted)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def run(self, run_id: str) -> dict[str, Any]:
        """A run as the API has it."""
        return dict(self.http.get(f"/api/runs/{run_id}").json())

    def node(self, name: str = "n0", slots: int = 2) -> FakeNode:
        """A worker that registers now."""
        return FakeNode(self, name, slots)

    def client(self, token: str = "") -> Client:
        """A worker's client that gives up no sooner than a busy machine answers."""
        return self.closing.enter_context(closing(patient(Client(self.url, token))))

    def pass_by(self, seconds: float) -> None:
        """Move the dashboard's time forward at once."""
        assert self._time is not None
        self._time.pass_by(seconds)

    @contextmanager
    def real_silence(self) -> Iterator[None]:
        """Take nodes for silent ten seconds after they spoke, as outside of tests."""
        heard = self.service.registry._clock
        self.service.registry._clock = self.service.clock
        yield
        self.service.registry._clock = heard

    @contextmanager
    def watching(self, run_id: str, tls: ssl.SSLContext | None = None, **headers: str) -> Iterator[Page]:
        """A page that is open on a run."""
        with self.connect(f"/api/live?run={run_id}", headers or self.bearer, ssl=tls) as socket:
            yield Page(socket)

    def connect(self, path: str, headers: Mapping[str, str], **options: Any) -> ClientConnection:
        """Open a WebSocket. Raises websockets.InvalidStatus."""
        return connect(
            self.url.replace("http", "ws") + path,
            additional_headers=headers,
            sock=connected(self.url),
            open_timeout=60,
            close_timeout=2,
            **options,
        )


class Page:
    """One live channel and what came over it."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.received: list[dict[str, Any]] = []

    def subscribe(self, since: Any = None, logs: Any = None) -> None:
        """What a page says when it opens, or when another log is chosen."""
        self.socket.send(json.dumps({"type": "subscribe", "since": since, "logs": logs}))

    def next(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next message that is wanted."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            message = json.loads(self.socket.recv(timeout=LIMIT_S))
            self.received.append(message)
            if is_wanted(message):
                return dict(message)
        raise AssertionError(f"it never came; these did: {self.received[-5:]}")

    def next_of(self, kind: str) -> dict[str, Any]:
        """The next message of a type."""
        return self.next(lambda message: message["type"] == kind)


class FakeNode:
    """A node's side, spoken by the worker's own client."""

    def __init__(self, running: Running, name: str, slots: int) -> None:
        self.client = running.client()
        self.facts = NodeFacts(
            name=name,
            instance_id=f"{name}-1",
            hostname=f"{name}.example",
            address="10.0.0.1",
            devices=[Device(id=f"cpu:{i}", kind="cpu", name="CPU slot") for i in range(slots)],
            info={DONE_HERE: [*TaskKind]},
        )
        self.identity = self.client.register(self.facts, None, running.join_token)

    def assignment(self) -> Assignment:
        """The only thing the node is told to run."""
        (assignment,) = self.client.desired_state(None, 0).assignments
        return assignment

    def task(self) -> TaskRef:
        """The node's part of the only attempt it has."""
        wanted = self.assignment()
        return TaskRef(wanted.fence, wanted.node_rank)

    def report(self, task: TaskRef, state: str, **more: Any) -> str:
        """Say what became of a part."""
        return self.client.report(task, TaskReport.model_validate({"state": state, **more}))

    def log_points(self, task: TaskRef, start: int, **series: list[tuple[int, float, float]]) -> int:
        """Send points; every call takes ten bytes of the event file."""
        named = {name.replace("__", "/"): points for name, points in series.items()}
        batch = PointBatch(path="work/events", generation=0, start=start, end=start + 10, series=named)
        return self.points(task, batch)

    def points(self, task: TaskRef, batch: PointBatch) -> int:
        """Send points; returns the offset up to which the server has them."""
        return self._send(points_piece(task, batch))

    def append(self, task: TaskRef, path: str, generation: int, offset: int, data: bytes) -> int:
        """Append to a mirrored file; returns the offset after the data."""
        return self._send(bytes_piece(task, path, generation, offset, data))

    def _send(self, piece: Piece) -> int:
        (answer,) = deliver(self.client, [piece])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def offer(self, task: TaskRef, content: bytes, path: str = "work/last.pt", step: int = 1) -> CheckpointOffer:
        """The offer of a checkpoint with that content."""
        return CheckpointOffer(
            path=path, step=step, size_bytes=len(content), sha256=sha256_of(content), written_at=time.time()
        )

    def store_checkpoint(self, task: TaskRef, content: bytes, path: str = "work/last.pt", step: int = 1) -> int:
        """Bring a checkpoint to the server; returns its id."""
        place = self.client.offer_checkpoint(task, self.offer(task, content, path, step))
        self.client.send_checkpoint(place.checkpoint_id, 0, content)
        self.client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
        return place.checkpoint_id


def wait_for(condition: Callable[[], T], what: str, limit_s: float = 300.0) -> T:
    """Move the time of this process's dashboards until the condition returns something true, and return that.

    It moves by a second after each tick, no faster: else their nodes would fall silent on a slow machine.
    For conditions that only processes, files or browsers bring about, use `tests.end_to_end.product.wait_for`."""
    until = time.monotonic() + limit_s
    while not (result := condition()):
        assert time.monotonic() < until, f"waited in vain for {what}"
        for running_time in _times:
            if running_time.is_awaited:
                running_time.pass_by(TICK_S)
        time.sleep(LOOK_S)
    return result


def patient(client: Client) -> Client:
    """Let a client wait longer than workers do for whatever it asks."""
    send = client._http.send

    def sent(request: httpx2.Request, **options: Any) -> httpx2.Response:
        request.extensions["timeout"] = httpx2.Timeout(ANSWER_LIMIT_S).as_dict()
        return send(request, **options)

    client._http.send = sent  # type: ignore[method-assign]
    return client


def bundle_of(task: TaskRef, content: bytes | str | dict[str, Any]) -> bytes:
    """The body of a request with one piece: whatever stands where points should."""
    content = json.dumps(content) if isinstance(content, dict) else content
    content = content.encode() if isinstance(content, str) else content
    head = PieceHead(fence=task.fence, node_rank=task.node_rank, size_bytes=len(content))
    return Bundle.body([head], [content])


def sha256_of(content: bytes) -> str:
    """The digest under which a checkpoint is offered."""
    return hashlib.sha256(content).hexdigest()


@contextmanager
def running(data: Path, *, on_port: bool = False, **settings: Any) -> Iterator[Running]:
    """Run a dashboard in a thread; with `on_port` it listens, for browsers and other processes."""
    chosen = Settings(data=data, **{"port": 0} | settings)
    if chosen.database_url is None:
        new_data(data)
    own_time = PassingTime()
    app = create_app(chosen, Service.open(chosen, clock=AnchoredTime(own_time)), with_pages=False)
    server = _server(app, chosen, on_port)
    thread = threading.Thread(target=server.run)
    thread.start()
    _times.append(own_time)
    try:
        server.is_ready.wait()
        it = Running(app.state.service, f"{chosen.scheme}://127.0.0.1:{server.port}", own_time)
        with it.closing:
            yield it
    finally:
        _times.remove(own_time)
        server.end()
        thread.join()


def _server(app: FastAPI, settings: Settings, on_port: bool) -> PromptServer:
    if not on_port:
        return PortlessServer(settings.port or next(_ports), uvicorn_config(app, settings), app.state.service)
    certificate = ServerCertificate(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
    config = uvicorn_config(app, settings, certificate)
    return PromptServer(config, app.state.service, None, certificate)


_times: list[PassingTime] = []
"""The times of the running dashboards."""
_ports = itertools.count(100)
"""Parts of addresses only: these dashboards do not listen."""
