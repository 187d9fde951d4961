"""A proxy between worker and dashboard that limits bodies costs no byte, no point and no other run anything."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from cli import main
from domain.messages import (
    CheckpointOffer,
    Finding,
    Findings,
    JobReport,
    NodeLoad,
    PointBatch,
    Stacks,
    TaskReport,
)
from tests.dashboard.running import FakeNode, Running, running
from tests.end_to_end.product import wait_for
from tests.virtual_time import VirtualTime
from tests.worker.limiting_proxy import LimitingProxy, limiting_proxy
from worker.launch.preparation import LocalNode
from worker.launch.warm import Supervisors
from worker.node import processes
from worker.session import bodies
from worker.session.bodies import BodyLimit
from worker.session.client import Client, TaskRef
from worker.session.failures import RequestFailed, ServerAway, TooLarge
from worker.session.pieces import Piece, bytes_piece, deliver, points_piece
from worker.trainings.daemon import Daemon

LARGE = """
import os, zipfile
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
for line in range(60_000):
    print(f"{line:08} " + "x" * 90)
writer = EventFileWriter("runs/a", flush_secs=3600)
for step in range(30_000):
    value = Summary.Value(tag="train/loss", simple_value=step * 0.5)
    writer.add_event(Event(step=step, wall_time=1e9 + step, summary=Summary(value=[value])))
writer.close()
with zipfile.ZipFile("last.pt", "w") as archive:
    archive.writestr("data", os.urandom(3_500_000))
"""


@pytest.fixture
def dashboard(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path / "server", on_port=True) as it:
        yield it


@pytest.fixture
def proxy(dashboard: Running) -> Iterator[LimitingProxy]:
    with limiting_proxy(dashboard.url) as it:
        yield it


@pytest.fixture(scope="module")
def answering() -> Iterator[LimitingProxy]:
    """A proxy that asks no server: each test says what it answers."""
    with limiting_proxy("http://127.0.0.1:9") as it:
        yield it


class Behind:
    """A worker's daemon that knows the dashboard by the proxy's address, and sees nothing of its disk."""

    def __init__(self, dashboard: Running, proxy: LimitingProxy, data: Path) -> None:
        self.node: FakeNode = dashboard.node()
        self.client = Client(proxy.url, self.node.client.token)
        self.data = data
        here = LocalNode(name="n0", data_dir=data, python=sys.executable)
        self.supervisors: list[Any] = []
        self.daemon = Daemon(self.client, here, self._spawn, lambda work: work())

    def _spawn(self, *what: Any) -> Any:
        self.supervisors.append(Supervisors(self.data, is_warm=False).spawn(*what))
        return self.supervisors[-1]

    def turn(self) -> bool:
        now = time.monotonic()
        with suppress(ServerAway):  # on a busy machine an answer may come too late: a worker asks again
            self.daemon.set_desired_state(self.client.desired_state(None, 0))
            self.daemon.step(now)
            self.daemon.take_checkpoints(now)
            self.daemon.send_checkpoints(None, lambda: True)
        return False

    def work_until(self, is_done: Any, what: str) -> None:
        wait_for(lambda: is_done() or self.turn(), what, 300)

    def close(self) -> None:
        for supervisor in self.supervisors:
            supervisor.kill()
            supervisor.wait()
        for attempt in self.daemon.attempts:
            run_id, _, number = attempt.label.partition("/")
            processes.kill_all(lambda run_id=run_id, n=int(number): processes.of_attempt(run_id, n, 0), 60)
        self.client.close()


@pytest.fixture
def worker(dashboard: Running, proxy: LimitingProxy, tmp_path: Path) -> Iterator[Behind]:
    it = Behind(dashboard, proxy, tmp_path / "node")
    with closing(it):
        yield it


def launch(dashboard: Running, folder: Path, text: str) -> str:
    folder.mkdir()
    (folder / "train.py").write_text(text)
    return dashboard.launch(target=str(folder / "train.py"), launcher="python", strategy="single", probe=False)


@pytest.mark.real
def test_a_run_larger_than_the_limit_in_everything_succeeds_whole(
    dashboard: Running,
    proxy: LimitingProxy,
    worker: Behind,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="worker.session.bodies")
    large = launch(dashboard, tmp_path / "large", LARGE)
    small = launch(dashboard, tmp_path / "small", "print('small')")
    ended = {"succeeded", "failed", "stopped"}
    worker.work_until(
        lambda: all(
            (run := dashboard.run(run_id))["state"] in ended and not run["delivery"] for run_id in (large, small)
        ),
        "both runs to end",
    )
    assert [dashboard.run(run_id)["state"] for run_id in (large, small)] == ["succeeded", "succeeded"]
    assert any(size > proxy.limit_bytes for _, size in proxy.refused), "nothing met the limit"

    attempt = worker.data / "runs" / large / "attempts/1/node0"
    log = dashboard.http.get(f"/api/runs/{large}/logs", params={"rank": 0, "stream": "out"})
    assert log.content == (attempt / "logs/rank0.out").read_bytes() and len(log.content) > 5_000_000
    (events,) = (attempt / "work/runs/a").iterdir()
    stored = [path.read_bytes() for path in dashboard.service.files.root.rglob("*") if path.is_file()]
    assert events.stat().st_size > 1024 * 1024 and events.read_bytes() in stored
    series = dashboard.http.get(f"/api/runs/{large}/metrics?name=train/loss").json()
    assert series["train/loss"] == [[step, step * 0.5, 1e9 + step] for step in range(30_000)]
    (checkpoint,) = dashboard.http.get(f"/api/runs/{large}/checkpoints").json()
    answer = dashboard.http.get(f"/api/checkpoints/{checkpoint['id']}/file")
    assert answer.content == (attempt / "work/last.pt").read_bytes()

    logged = [record.message for record in caplog.records if "refuses large requests (413)" in record.message]
    assert len(logged) == len(set(logged)) and logged, "said once for each limit"
    worker.client.load(NodeLoad(notice="The disk is nearly full."))

    def shown() -> str:
        (node,) = dashboard.http.get("/api/nodes").json()
        return str((node["load"] or {}).get("notice"))

    told = wait_for(lambda: "disk" in (notice := shown()) and notice, "the notice to be stored")
    assert told.startswith("The disk is nearly full. A proxy in front of the server refuses large requests")


def test_a_limit_is_learnt_once_for_all_and_tried_again_later() -> None:
    virtual = VirtualTime()
    limit = BodyLimit(virtual)
    assert limit.most(10**9) == 10**9 and limit.notice is None
    limit.refused(4_000_000)
    limit.refused(3_000_000)
    assert limit.most(10**9) == 1_500_000 and limit.most(10) == 10
    limit.refused(1)
    assert limit.bytes == bodies.LEAST_BYTES
    virtual.advance(bodies.RETRY_AFTER_S)
    assert limit.bytes is None and limit.notice is None


def delivered(client: Client, piece: Piece) -> int:
    (answer,) = deliver(client, [piece])
    if isinstance(answer, Exception):
        raise answer
    return answer


BATCH = PointBatch(path="work/events", generation=0, start=0, end=10, series={"loss": [(1, 0.5, 1.0)]})
CALLS = {
    "bytes": lambda client, task: delivered(client, bytes_piece(task, "logs/rank0.out", 0, 0, b"x")),
    "points": lambda client, task: delivered(client, points_piece(task, BATCH)),
    "offsets": lambda client, task: client.file_offsets(task, "logs/rank0.out", 0),
    "findings": lambda client, task: client.findings(task, Findings(findings=[Finding(kind="k", evidence="e")])),
    "offer": lambda client, task: client.offer_checkpoint(
        task, CheckpointOffer(path="a.pt", step=1, size_bytes=1, sha256="0" * 64, written_at=1.0)
    ),
    "checkpoint": lambda client, task: client.send_checkpoint(1, 0, b"x"),
    "complete": lambda client, task: client.complete_checkpoint(1, "0" * 64),
    "report": lambda client, task: client.report(task, TaskReport(state="running")),
    "stacks": lambda client, task: client.stacks(task, Stacks(requested_at=1.0, at=1.0, ranks={})),
    "load": lambda client, task: client.load(NodeLoad()),
    "job": lambda client, task: client.report_job(1, JobReport(state="pending")),
    "time": lambda client, task: client.time(),
    "wishes": lambda client, task: client.desired_state(None, 0),
}
JSON, PAGE = "application/json", "text/html"


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "answer",
    [
        (200, PAGE, b"<html>Sign in</html>"),
        (302, PAGE, b""),
        (200, JSON, b"[]"),
        (200, JSON, b'{"ok": true, "complete": true}'),
        (200, JSON, b""),
        (204, PAGE, b""),
        (416, PAGE, b"<html>"),
    ],
    ids=["a login page", "a redirect", "a list", "another object", "nothing", "a stray 204", "another 416"],
)
def test_answer_of_a_proxy_is_no_answer_of_the_server(
    answering: LimitingProxy, call: str, answer: tuple[int, str, bytes]
) -> None:
    answering.odd = lambda method, path: answer
    with closing(Client(answering.url, "token")) as client, pytest.raises(RequestFailed):
        client.node_id = "n1"
        CALLS[call](client, TaskRef(1, 0))


@pytest.mark.parametrize("call", ["bytes", "points", "checkpoint", "offsets"])
@pytest.mark.parametrize("offset", [b"-1", b"99999", b'"0"', b"1.5", b"null", b"true"])
def test_an_offset_outside_of_what_was_sent_is_no_answer(answering: LimitingProxy, call: str, offset: bytes) -> None:
    if call == "offsets" and offset == b"99999":
        return  # how long the file is, only its mirror knows
    body = b'{"offset": ' + offset + b"}"
    if call in ("bytes", "points"):
        body = b'{"answers": [{"status": 200, "body": ' + body + b"}]}"
    answering.odd = lambda method, path: (200, JSON, body)
    with closing(Client(answering.url, "token")) as client, pytest.raises(RequestFailed):
        CALLS[call](client, TaskRef(1, 0))


def words(size: int) -> Piece:
    return bytes_piece(TaskRef(1, 0), "logs/rank0.out", 0, 0, b"x" * size)


def test_a_413_of_any_kind_is_a_limit_and_smaller_data_passes(proxy: LimitingProxy) -> None:
    own = (413, JSON, b'{"detail": {"field": null, "message": "The body must be at most 9 bytes here."}}')
    with closing(Client(proxy.url, "token")) as client:
        with pytest.raises(TooLarge, match="not by the server"):
            delivered(client, words(2_000_000))
        assert client.body_limit.bytes == 1_000_000
        proxy.odd = lambda method, path: own
        with pytest.raises(TooLarge, match="at most 9 bytes"):
            delivered(client, words(500_000))
        assert client.body_limit.bytes == 250_000
        before = len(proxy.refused)
        with pytest.raises(TooLarge, match="will not pass"):
            delivered(client, words(500_000))
        assert len(proxy.refused) == before, "it was not even sent"


def test_the_command_line_names_the_proxys_limit_and_what_to_raise(
    dashboard: Running, proxy: LimitingProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("pass")
    (tmp_path / "project" / "words.txt").write_bytes(os.urandom(2_000_000))
    monkeypatch.setenv("RANKZERO_URL", proxy.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    assert main.run(["launch", str(tmp_path / "project"), "--entry", "train.py"]) == 1
    said = capfd.readouterr().err
    assert "refuses 2,0" in said and "client_max_body_size" in said and "RANKZERO_SNAPSHOT_LIMIT_MB" in said
    assert dashboard.http.get("/api/runs").json() == []
