"""Pieces of several streams in one request: each is answered as if it had come alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import httpx2
import pytest

from db.tasks import task_reports
from domain.messages import Bundle, PointBatch
from domain.spec import RunSpec
from tests.dashboard.running import FakeNode, Running
from tests.worker.streams.event_bytes import scalar
from worker.attempt.uploader import AttemptUploader
from worker.session.client import TaskRef
from worker.session.failures import (
    AttemptSuperseded,
    AttemptUnknown,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
    ServerMistake,
)
from worker.session.outbox import Outbox, send
from worker.session.pieces import Piece, bytes_piece, deliver, points_piece


def points(task: TaskRef, path: str = "work/events", start: int = 0, value: float = 0.5) -> Piece:
    batch = PointBatch(path=path, generation=0, start=start, end=start + 10, series={path: [(start, value, 1.0)]})
    return points_piece(task, batch)


def words(task: TaskRef, text: bytes, offset: int = 0, path: str = "logs/rank0.out") -> Piece:
    return bytes_piece(task, path, 0, offset, text)


@pytest.fixture
def requests(node: FakeNode) -> list[str]:
    """The paths of the node's requests."""
    made: list[str] = []
    node.client._http.event_hooks["request"].append(lambda request: made.append(request.url.path))
    return made


def test_all_that_a_node_has_to_say_takes_one_request(dashboard: Running, node: FakeNode, requests: list[str]) -> None:
    runs = [dashboard.launch() for _ in range(2)]
    assignments = node.client.desired_state(None, 0).assignments
    tasks = [TaskRef(assignment.fence, 0, assignment.label) for assignment in assignments]
    requests.clear()
    pieces = [piece for task in tasks for piece in (points(task), words(task, b"hello\n"))]
    assert deliver(node.client, pieces) == [10, 6, 10, 6]
    assert requests == ["/api/worker/pieces"]
    for run_id in runs:
        assert dashboard.http.get(f"/api/runs/{run_id}/metrics").json() == {"work/events": [[0, 0.5, 1.0]]}
        assert "hello" in dashboard.http.get(f"/api/runs/{run_id}/logs?file=logs/rank0.out").text
    assert deliver(node.client, [points(task, start=10) for task in tasks]) == [20, 20]


def test_a_request_that_comes_twice_is_stored_once(dashboard: Running, node: FakeNode) -> None:
    run_id, task = dashboard.launch(), node.task()
    pieces = [points(task), words(task, b"one\n"), points(task, "probe")]
    assert deliver(node.client, pieces) == [10, 4, 10]
    answers = deliver(node.client, pieces)
    assert [answer.have for answer in answers if isinstance(answer, OffsetMismatch)] == [10, 4, 10]
    assert dashboard.http.get(f"/api/runs/{run_id}/metrics").json() == {
        "work/events": [[0, 0.5, 1.0]],
        "probe": [[0, 0.5, 1.0]],
    }
    assert node.client.file_offsets(task, "logs/rank0.out", 0).offset == 4


def test_a_bad_piece_holds_up_no_other(dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, task = dashboard.launch(), node.task()
    store = task_reports.store_batches

    def mistaken(session: Any, batches: Any) -> Any:
        if any(point[1] == 13 for batch in batches for points in batch.series.values() for point in points):
            raise ArithmeticError
        return store(session, batches)

    monkeypatch.setattr(task_reports, "store_batches", mistaken)
    bad_path = words(task, b"x", path="")  # read as points, which it is not
    pieces = [
        points(task, "mistaken", value=13),
        points(task, "a"),
        points(dataclasses.replace(task, fence=10_000), "b"),
        words(task, b"one\n"),
        words(task, b"late", offset=99, path="logs/rank1.out"),
        bad_path,
        points(dataclasses.replace(task, fence=10_001, label="aaaaaaaaaa/1/x"), "c"),
        words(task, b"two\n", path="logs/rank0.err"),
    ]
    answers = deliver(node.client, pieces)
    kinds = [type(answer) for answer in answers]
    assert kinds[0] is ServerMistake and kinds[4] is OffsetMismatch and kinds[5] is RequestRefused
    assert kinds[6] is AttemptUnknown and kinds[2] is RequestFailed
    assert [answers[at] for at in (1, 3, 7)] == [10, 4, 4]
    assert dashboard.http.get(f"/api/runs/{run_id}/metrics").json() == {"a": [[0, 0.5, 1.0]]}
    for log, size in (("out", 4), ("err", 4)):
        assert node.client.file_offsets(task, f"logs/rank0.{log}", 0).offset == size


def test_a_node_writes_only_to_its_own_attempts(dashboard: Running, node: FakeNode) -> None:
    run_id, task = dashboard.launch(), node.task()
    other = dashboard.node("n1")
    other.client.desired_state(None, 0)
    answers = deliver(other.client, [points(task), words(task, b"x")])
    assert [type(answer) for answer in answers] == [AttemptSuperseded] * 2
    assert dashboard.http.get(f"/api/runs/{run_id}/metrics").json() == {}


@pytest.mark.parametrize("body", [b"", b"[]x", b'[{"fence":1,"node_rank":0,"size_bytes":9}]\nabc', b"\xff\n"])
def test_a_body_that_is_no_bundle_is_refused_in_a_sentence(dashboard: Running, node: FakeNode, body: bytes) -> None:
    token = {"Authorization": f"Bearer {node.identity.token}"}
    answer = httpx2.post(f"{dashboard.url}/api/worker/pieces", headers=token, content=body, timeout=60)
    assert answer.status_code == 422 and answer.json()["detail"]["message"].endswith(".")


def test_a_request_is_limited(dashboard: Running, node: FakeNode) -> None:
    task = TaskRef(1, 0)
    large = words(task, b"x" * 5_000_000)
    body = Bundle.body([large.head], [large.content])
    token = {"Authorization": f"Bearer {node.identity.token}"}
    assert httpx2.post(f"{dashboard.url}/api/worker/pieces", headers=token, content=body, timeout=60).status_code == 413


def test_a_run_sends_all_its_streams_in_one_request(
    dashboard: Running, node: FakeNode, tmp_path: Path, requests: list[str]
) -> None:
    run_id, task = dashboard.launch(), node.task()
    events, log = tmp_path / "work/events.out.tfevents.1700000000.n", tmp_path / "logs/rank0.out"
    for path in (events, log):
        path.parent.mkdir()
    uploader = AttemptUploader(tmp_path, RunSpec(target="/a.py"), node.client, task, "a/1")
    for turn in range(3):
        with events.open("ab") as file, log.open("ab") as lines:
            file.write(scalar(turn, 0.5 * turn))
            lines.write(b"a line\n")
        requests.clear()
        send(node.client, Outbox(uploader.upload(10.0 * turn, watched=False)))
    sent = [path for path in requests if "findings" not in path]
    assert sent == ["/api/worker/pieces"], "bytes of both files, and the points of one"
    (points,) = dashboard.http.get(f"/api/runs/{run_id}/metrics").json().values()
    assert [step for step, _, _ in points] == [0, 1, 2]
    assert node.client.file_offsets(task, "logs/rank0.out", 0).offset == 3 * len(b"a line\n")
