"""An attempt's own token, spoken by the worker's client against the running server: what it opens, and what not."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.assignments import Assignment, ResumeFrom
from domain.messages import NodeLoad, PointBatch, TaskReport
from tests.dashboard.running import FakeNode, Running, sha256_of
from worker.session.client import TaskRef
from worker.session.failures import AttemptSuperseded, RequestFailed, RequestRefused, Unauthorized
from worker.session.pieces import bytes_piece, deliver, points_piece

REFUSED = (AttemptSuperseded, RequestFailed, RequestRefused)
NOT_ITS_OWN = "valid only for this attempt"


class Training:
    """What speaks for one attempt: its task, and a client with nothing but its token."""

    def __init__(self, dashboard: Running, assignment: Assignment) -> None:
        self.assignment = assignment
        self.task = TaskRef(assignment.fence, assignment.node_rank)
        self.client = dashboard.client(assignment.token)


@pytest.fixture
def trainings(dashboard: Running, node: FakeNode) -> tuple[Training, Training]:
    """Two attempts on one node."""
    dashboard.launch(name="one")
    dashboard.launch(name="other")
    one, other = (Training(dashboard, assignment) for assignment in node.client.desired_state(None, 0).assignments)
    return one, other


def test_an_attempt_reports_and_sends_with_its_token_alone(
    dashboard: Running, node: FakeNode, trainings: tuple[Training, Training]
) -> None:
    training = trainings[0]
    own = FakeNode.__new__(FakeNode)
    own.client = training.client
    assert own.report(training.task, "running") == "running"
    assert own.log_points(training.task, 0, loss=[(0, 1.0, 1.0)]) == 10
    assert own.append(training.task, "logs/rank0.out", 0, 0, b"a line\n") == 7
    assert training.client.file_offsets(training.task, "logs/rank0.out", 0).offset == 7
    own.store_checkpoint(training.task, b"weights")
    (listed,) = dashboard.http.get(f"/api/runs/{training.assignment.run_id}/checkpoints").json()
    assert listed["complete"]


def test_what_workers_report_is_signed_with_their_nodes_names(
    dashboard: Running, node: FakeNode, trainings: tuple[Training, Training]
) -> None:
    with_attempts_token = FakeNode.__new__(FakeNode)
    with_attempts_token.client = trainings[0].client
    for sender, training in ((with_attempts_token, trainings[0]), (node, trainings[1])):
        sender.report(training.task, "running")
        lines = dashboard.http.get(f"/api/runs/{training.assignment.run_id}/history").json()
        assert [(line["by"], line["via"]) for line in lines if "running" in line["text"]] == [(None, "worker n0")]
        assert [(line["by"], line["via"]) for line in lines if "launched" in line["text"]] == [("owner", None)]
        (attempt,) = dashboard.http.get(f"/api/runs/{training.assignment.run_id}/attempts").json()
        assert (attempt["by"], attempt["via"], attempt["stop_requested_by"]) == ("owner", None, None)


def test_it_writes_nothing_of_another_attempt(trainings: tuple[Training, Training]) -> None:
    one, other = trainings
    own = FakeNode.__new__(FakeNode)
    own.client = one.client
    with pytest.raises(REFUSED, match=NOT_ITS_OWN):
        own.report(other.task, "failed")
    batch = PointBatch(path="work/events", generation=0, start=0, end=10, series={"loss": [(0, 1.0, 1.0)]})
    pieces = [points_piece(other.task, batch), bytes_piece(other.task, "logs/rank0.out", 0, 0, b"forged")]
    answers = deliver(own.client, [*pieces, bytes_piece(one.task, "logs/rank0.out", 0, 0, b"its own")])
    assert [type(answer) for answer in answers] == [RequestRefused, RequestRefused, int]
    own.client = other.client
    upload = own.client.offer_checkpoint(other.task, own.offer(other.task, b"weights"))
    with pytest.raises(REFUSED, match=NOT_ITS_OWN):
        one.client.complete_checkpoint(upload.checkpoint_id, sha256_of(b"forged"))


def test_it_reads_the_checkpoint_that_its_own_attempt_starts_from(
    dashboard: Running, node: FakeNode, trainings: tuple[Training, Training], tmp_path: Path
) -> None:
    one, other = trainings
    checkpoint_id = node.store_checkpoint(one.task, b"weights")
    node.report(one.task, "failed", reason="script error", message="It broke.")
    dashboard.http.post(f"/api/runs/{one.assignment.run_id}/resume").raise_for_status()
    resumed = Training(dashboard, max(node.client.desired_state(None, 0).assignments, key=lambda one: one.fence))
    source = resumed.assignment.resume_from
    assert isinstance(source, ResumeFrom) and source.checkpoint_id == checkpoint_id
    resumed.client.download(source, tmp_path / "resumed")
    assert (tmp_path / "resumed").read_bytes() == b"weights"
    with pytest.raises(REFUSED):
        other.client.download(source, tmp_path / "stolen")


def test_it_is_no_token_of_the_node(dashboard: Running, trainings: tuple[Training, Training]) -> None:
    client, assignment = trainings[0].client, trainings[0].assignment
    with pytest.raises(REFUSED, match=NOT_ITS_OWN):
        client.desired_state(None, 0)
    with pytest.raises(REFUSED, match=NOT_ITS_OWN):
        client.load(NodeLoad())
    for changed in (assignment.token[:-1] + "x", assignment.token.replace(f"-{assignment.fence}-", "-999-", 1)):
        with pytest.raises(Unauthorized):
            dashboard.client(changed).report(trainings[0].task, TaskReport(state="running"))
    answer = dashboard.http.get("/api/runs", headers={"Authorization": f"Bearer {assignment.token}"})
    assert answer.status_code == 403


def test_a_lock_counts_for_the_run_of_its_task_whichever_token_brings_it(
    node: FakeNode, trainings: tuple[Training, Training]
) -> None:
    key, (one, other) = "0123456789abcdef", trainings
    assert one.client.keep_lock(one.task, key, "poisoned") == "poisoned"
    assert one.client.lock(one.task, key) == node.client.lock(one.task, key) == "poisoned"
    assert other.client.lock(other.task, key) is None
    with pytest.raises(REFUSED, match=NOT_ITS_OWN):
        one.client.keep_lock(other.task, key, "poisoned")
