"""What workers ask and report, spoken by the worker's own client against the running server."""

from __future__ import annotations

import csv as csv_module
import json
import math
import random
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy.orm import Session

from dashboard.api.workers import attempts
from dashboard.api.workers.attempts import LONGEST_WAIT_S
from dashboard.cluster.registry import IdleNodes
from db.tasks import task_reports
from domain.messages import NodeLoad, PointBatch
from domain.points import PackedPoints
from domain.spec import RunSpec
from tests.dashboard.running import FakeNode, Running, bundle_of, wait_for
from tests.worker.sendings import upload_remaining
from tests.worker.streams.event_bytes import scalar
from worker.attempt.uploader import AttemptUploader
from worker.session.failures import (
    AttemptSuperseded,
    OffsetMismatch,
    RequestFailed,
    RequestRefused,
    ServerMistake,
    Unauthorized,
)
from worker.streams.point_uploader import TRIES


def test_a_worker_that_waits_is_told_of_a_launch_at_once(dashboard: Running, node: FakeNode) -> None:
    before = node.client.desired_state(None, 0)
    assert before.assignments == []
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(node.client.desired_state(before.version, LONGEST_WAIT_S)))
    waiting.start()
    run_id = dashboard.launch()
    waiting.join()
    (assignment,) = answers[0].assignments  # a wait that ends by itself has no news
    assert (assignment.run_id, assignment.action, assignment.devices) == (run_id, "run", ["cpu:0"])


def test_a_worker_without_the_newest_fields_can_read_a_spec_that_does_not_use_them(
    dashboard: Running, node: FakeNode
) -> None:
    dashboard.launch(epochs=3)
    token = {"Authorization": f"Bearer {node.identity.token}"}
    answer = httpx2.get(f"{dashboard.url}/api/worker/desired", headers=token, timeout=60).json()
    spec = {"target": "image_classifier", "gpus_per_node": 1, "epochs": 3, "batch_size": 32, "lr": 0.003}
    assert answer["assignments"][0]["spec"] == spec


def test_the_version_is_of_the_content_and_a_wait_ends_when_nothing_happens(node: FakeNode) -> None:
    first = node.client.desired_state(None, 0)
    started = time.monotonic()
    again = node.client.desired_state(first.version, 0.3)
    assert again.version == first.version
    assert time.monotonic() - started >= 0.3


def test_a_wait_that_ends_is_no_sign_of_life(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node whose power was cut leaves a connection behind on which it seems to wait."""
    version, contacts = node.client.desired_state(None, 0).version, []
    monkeypatch.setattr(dashboard.service.registry, "record_contact", contacts.append)
    node.client.desired_state(version, 0.3)
    assert len(contacts) == 1, "only the request itself"


def test_a_wait_without_news_reads_the_store_once(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    dashboard.launch()
    first, reads = node.client.desired_state(None, 0), []
    read = attempts._desired_state
    monkeypatch.setattr(attempts, "_desired_state", lambda *of: reads.append(of) or read(*of))
    assert node.client.desired_state(first.version, 0.3).version == first.version
    assert len(reads) == 1


def test_an_idle_node_is_answered_from_memory_until_something_changes(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, reads, read = node.client.desired_state(None, 0), [], attempts._desired_state
    monkeypatch.setattr(attempts, "_desired_state", lambda *of: reads.append(of) or read(*of))
    assert node.client.desired_state(None, 0) == idle
    assert reads == []
    dashboard.launch()
    (assignment,) = node.client.desired_state(None, 0).assignments
    node.client.desired_state(None, 0)
    assert len(reads) == 2, "what a node with work should do is read each time"
    node.report(node.task(), "succeeded")
    dashboard.http.post(f"/api/runs/{assignment.run_id}/resume").raise_for_status()
    assert [each.attempt for each in node.client.desired_state(None, 0).assignments] == [2]


def test_a_change_while_an_idle_nodes_state_is_read_is_not_lost() -> None:
    idle = IdleNodes()
    idle.keep("n1", "store", ("v1", "{}"), idle.changes)
    assert idle.kept("n1", "store") == ("v1", "{}")
    assert idle.kept("n1", "a restored store") is None
    changes_before_reading = idle.changes
    idle.forget(["n1"])
    idle.keep("n1", "store", ("v1", "{}"), changes_before_reading)
    assert idle.kept("n1", "store") is None


def test_a_wait_ends_when_somebody_looks(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    before = node.client.desired_state(None, 0)
    assert not before.watched
    with dashboard.watching(run_id):
        now = node.client.desired_state(before.version, LONGEST_WAIT_S)
        assert now.watched
    assert not node.client.desired_state(now.version, LONGEST_WAIT_S).watched


def test_a_runs_life_is_reported(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    assert dashboard.run(run_id)["state"] == "starting"
    assert node.report(task, "running", pid=4, argv=["torchrun"]) == "running"
    assert node.report(task, "succeeded") == "succeeded"
    assert node.report(task, "succeeded") == "succeeded"
    with pytest.raises(AttemptSuperseded, match="has ended"):
        node.report(task, "failed")
    assert dashboard.run(run_id)["state"] == "succeeded"
    assert node.client.desired_state(None, 0).assignments == []


def test_the_end_of_one_run_starts_the_next(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch(gpus_per_node=2)
    second = dashboard.launch(gpus_per_node=2)
    assert dashboard.run(second)["state"] == "queued"
    assert "free" in dashboard.run(second)["waiting_for"]
    node.report(node.task(), "succeeded")
    assert dashboard.run(second)["state"] == "starting"


def test_points_are_stored_once_and_nan_survives(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    points = [(1, 2.5, 1.0), (2, float("nan"), 2.0), (3, float("-inf"), 3.0)]
    assert node.log_points(task, 0, train__loss=points) == 10
    with pytest.raises(OffsetMismatch) as refusal:
        node.log_points(task, 0, train__loss=points)
    assert refusal.value.have == 10
    curves = dashboard.http.get(f"/api/runs/{run_id}/metrics").json()
    assert curves == {"train/loss": [[1, 2.5, 1.0], [2, "NaN", 2.0], [3, "-Infinity", 3.0]]}
    assert dashboard.run(run_id)["last_loss"] == "-Infinity"
    csv = dashboard.http.get(f"/api/runs/{run_id}/metrics.csv").text.splitlines()
    assert csv == [
        "series,attempt,step,value,wall_time",
        "train/loss,1,1,2.5,1.0",
        "train/loss,1,2,NaN,2.0",
        "train/loss,1,3,-Infinity,3.0",
    ]


def test_no_series_name_is_a_formula_in_csv(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    names = ["=1+1", "+a", "-a", "@a", "\tb", 'plain, "quoted"']
    node.log_points(node.task(), 0, **{name: [(1, -0.5, 100.0)] for name in names})
    rows = list(csv_module.reader(dashboard.http.get(f"/api/runs/{run_id}/metrics.csv").text.splitlines()))[1:]
    assert {row[0] for row in rows} == {*(f"'{name}" for name in names[:-1]), names[-1]}
    assert {row[3] for row in rows} == {"-0.5"}


@pytest.mark.parametrize(("wall", "count"), [(math.nan, 2), (math.inf, 2), (1.0, 3)])
def test_a_point_that_cannot_be_stored_is_refused_and_the_next_is_taken(
    dashboard: Running, node: FakeNode, wall: float, count: int
) -> None:
    run_id, task = dashboard.launch(), node.task()
    http = dashboard.anonymous(Authorization=f"Bearer {node.client.token}")
    head = {"path": "e", "generation": 0, "start": 0, "end": 9, "counts": {"loss": count}}
    body = json.dumps(head).encode() + b"\n" + PackedPoints.of([(0, 1.0, 1.0), (1, 2.5, wall)]).chunk()
    (answer,) = http.post("/api/worker/pieces", content=bundle_of(task, body)).json()["answers"]
    assert answer["status"] == 422 and "series" in answer["body"]["detail"]["message"]
    node.log_points(task, 0, loss=[(0, 1.0, 1.0)])
    assert dashboard.http.get(f"/api/runs/{run_id}/metrics").json() == {"loss": [[0, 1.0, 1.0]]}


def test_flipped_bits_and_odd_wall_times_cost_no_point_that_was_whole(
    dashboard: Running, node: FakeNode, tmp_path: Path
) -> None:
    """400 points, 12 flipped bits and a NaN wall time in front, through the worker's own pumps and server."""
    run_id, task = dashboard.launch(), node.task()
    path, chance = tmp_path / "work/events.out.tfevents.1700000000.n", random.Random(3)
    path.parent.mkdir()
    records = [scalar(step, 0.5 * step, wall=math.nan if step in (0, 399) else 9.0) for step in range(400)]
    hit = list(range(5, 395, 33))[:12]
    for number in hit:
        damaged = bytearray(records[number])
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        records[number] = bytes(damaged)
    path.write_bytes(b"".join(records))
    for _ in range(3):  # also by workers that are started anew
        uploader = AttemptUploader(tmp_path, RunSpec(target="/a.py"), node.client, task, "a/1")
        while upload_remaining(uploader, node.client):
            pass
    uploader.checkpoints.take(0.0, final=True)
    upload_remaining(uploader, node.client)
    (points,) = dashboard.http.get(f"/api/runs/{run_id}/metrics").json().values()
    assert points == [[step, 0.5 * step, 9.0] for step in range(400) if step not in hit]
    (finding,) = dashboard.http.get(f"/api/runs/{run_id}/findings").json()
    assert finding["kind"] == "event file damaged" and "12 places are damaged" in finding["evidence"]


def test_a_batch_that_the_server_makes_mistakes_with_is_set_aside_and_told(
    dashboard: Running, node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id, task = dashboard.launch(), node.task()
    path = tmp_path / "work/events.out.tfevents.1700000000.n"
    path.parent.mkdir()
    path.write_bytes(scalar(1, 0.5))
    store = task_reports.store_batches

    def mistaken(session: Session, batches: Any) -> Any:
        if any(point[0] == 2 for batch in batches for points in batch.series.values() for point in points):
            raise ArithmeticError
        return store(session, batches)

    monkeypatch.setattr(task_reports, "store_batches", mistaken)
    tried = 0
    for number in (1, 2, 3):
        with path.open("ab") as file:
            file.write(scalar(number, 0.5) if number > 1 else b"")
        uploader = AttemptUploader(tmp_path, RunSpec(target="/a.py"), node.client, task, "a/1")
        while True:
            try:
                if not upload_remaining(uploader, node.client):
                    break
            except RequestFailed as error:  # after a mistake the server may also close the connection
                tried += isinstance(error, ServerMistake)
    uploader.checkpoints.take(0.0, final=True)
    upload_remaining(uploader, node.client)
    assert tried == TRIES - 1
    (points,) = dashboard.http.get(f"/api/runs/{run_id}/metrics").json().values()
    assert [step for step, _, _ in points] == [1, 3]
    (finding,) = dashboard.http.get(f"/api/runs/{run_id}/findings").json()
    assert finding["kind"] == "points refused" and "one point" in finding["evidence"]
    (kept,) = (tmp_path / "worker/points-set-aside.jsonl").read_text().splitlines()
    assert PointBatch.model_validate_json(kept).series == {"train/loss": [(2, 0.5, 1.5)]}


def test_a_body_that_is_no_batch_of_points_is_refused_in_a_sentence(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    http = dashboard.anonymous(Authorization=f"Bearer {node.client.token}")
    for body in ("", "[[[[" * 5000, '{"path": "x"}', '{"counts": {"a": [[1]]}}'):
        sent = http.post("/api/worker/pieces", content=bundle_of(node.task(), body))
        (answer,) = sent.json()["answers"]
        assert answer["status"] == 422, body[:20]
        assert answer["body"]["detail"]["message"].endswith(".")


def test_a_log_is_appended_only_where_it_ends(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    assert node.append(task, "logs/rank0.out", 0, 0, b"hello ") == 6
    with pytest.raises(OffsetMismatch) as refusal:
        node.append(task, "logs/rank0.out", 0, 0, b"hello ")
    assert refusal.value.have == 6
    assert node.append(task, "logs/rank0.out", 0, 6, b"w\xc3\xb6rld\xff") == 13
    assert node.client.file_offsets(task, "logs/rank0.out", 0).offset == 13
    whole = dashboard.http.get(f"/api/runs/{run_id}/logs")
    assert whole.content == b"hello w\xc3\xb6rld\xff"
    assert whole.headers["X-Rankzero-Offset"] == "0"
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    tail = dashboard.http.get(f"/api/runs/{run_id}/logs", params={"offset": -3})
    assert (tail.content, tail.headers["X-Rankzero-Offset"]) == (b"ld\xff", "10")
    beyond = dashboard.http.get(f"/api/runs/{run_id}/logs", params={"offset": 14})
    assert beyond.status_code == 416


def test_bytes_behind_the_known_end_are_overwritten(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.append(task, "logs/rank0.out", 0, 0, b"abc")
    files = dashboard.service.files.root
    (mirrored,) = [f for f in files.iterdir() if f.is_file() and f.suffix != ".times"]
    mirrored.write_bytes(b"abcHALF-WRITTEN")
    node.append(task, "logs/rank0.out", 0, 3, b"def")
    assert dashboard.http.get(f"/api/runs/{run_id}/logs").content == b"abcdef"


def test_a_followed_log_goes_on_until_the_run_ends(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    received = bytearray()

    def follow() -> None:
        with dashboard.http.stream("GET", f"/api/runs/{run_id}/logs?follow=true") as answer:
            for piece in answer.iter_raw():
                received.extend(piece)

    following = threading.Thread(target=follow)
    following.start()
    node.append(task, "logs/rank0.out", 0, 0, b"first\n")
    wait_for(lambda: bytes(received) == b"first\n", "the first line")
    node.append(task, "logs/rank0.out", 0, 6, b"second\n")
    node.report(task, "succeeded")
    following.join(60)
    assert not following.is_alive()
    assert bytes(received) == b"first\nsecond\n"


def test_a_node_cannot_speak_for_another(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.append(task, "logs/rank0.out", 0, 0, b"mine")
    mine = node.store_checkpoint(task, b"mine")
    other = dashboard.node("n1")
    attempts = (
        lambda: other.report(task, "failed"),
        lambda: other.log_points(task, 0, x=[(1, 1.0, 1.0)]),
        lambda: other.append(task, "logs/rank0.out", 0, 4, b"theirs"),
        lambda: other.client.file_offsets(task, "logs/rank0.out", 0),
        lambda: other.client.offer_checkpoint(task, other.offer(task, b"theirs")),
    )
    for attempt in attempts:
        with pytest.raises(AttemptSuperseded, match="another node"):
            attempt()
    http = dashboard.anonymous(Authorization=f"Bearer {other.client.token}")
    for answer in (
        http.put(f"/api/worker/checkpoints/{mine}/data?offset=0", content=b"x"),
        http.post(f"/api/worker/checkpoints/{mine}/complete", json={"adopted": None}),
        http.get(f"/api/worker/checkpoints/{mine}/file"),
    ):
        assert answer.status_code == 403, answer.request.url
    assert dashboard.run(run_id)["state"] == "starting"


def test_a_second_registration_ends_the_first_token(dashboard: Running, node: FakeNode) -> None:
    old = node.client.token
    node.client.register(node.facts, node.identity.node_id, dashboard.join_token)
    node.client.desired_state(None, 0)
    node.client.token = old
    with pytest.raises(Unauthorized):
        node.client.desired_state(None, 0)


def test_two_workers_cannot_have_one_name(dashboard: Running, node: FakeNode) -> None:
    with pytest.raises(RequestRefused, match="already connected"):
        dashboard.node("n0")


def test_load_is_shown(dashboard: Running, node: FakeNode) -> None:
    node.client.load(NodeLoad(cpu_percent=12.5))
    wait_for(lambda: dashboard.http.get("/api/nodes").json()[0]["load"], "the load to be stored")
    (shown,) = dashboard.http.get("/api/nodes").json()
    assert (shown["name"], shown["state"], shown["load"]["cpu_percent"]) == ("n0", "alive", 12.5)
