"""Ranks in figures, and the question where each stands."""

from __future__ import annotations

import pytest

from db.exceptions import NoSuchRun, Superseded, WrongState
from db.ranks.ranks import ranks, request_stacks, stacks, stacks_reported
from db.runs import run_queries
from domain.messages import StackFrame, Stacks


@pytest.fixture
def running(cluster):
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    return cluster, run_id, assignment.fence


def frame(line: int) -> StackFrame:
    return StackFrame(file="/home/me/train.py", line=line, function="main")


def answer(cluster, fence: int, requested_at: float) -> str:
    said = Stacks(requested_at=requested_at, at=cluster.now, ranks={0: [frame(41)], 1: []})
    return stacks_reported(cluster.store, cluster.node_id, fence, 0, said)


def test_ranks_are_told_by_the_last_the_probe_has_said(running):
    cluster, run_id, fence = running
    series = {
        "rank0/step_time_s": [(10, 0.5, 101.0), (20, 0.4, 102.0)],
        "rank0/peak_memory_bytes": [(20, 1024.0, 102.0)],
        "rank1/step_time_s": [(19, 0.4, 102.0)],
        "samples_per_s": [(20, 99.0, 102.0)],
    }
    cluster.points(fence, 0, 10, series, source="probe")
    first, second = ranks(cluster.store, run_id)
    assert (first.rank, first.node, first.step, first.step_time_s) == (0, "gpu-1", 20, 0.4)
    assert (first.peak_memory_bytes, first.data_wait_s) == (1024, None)
    assert (second.rank, second.step) == (1, 19)


def test_a_script_that_logs_such_names_itself_is_not_the_probe(running):
    cluster, run_id, fence = running
    cluster.points(fence, 0, 10, {"rank0/step_time_s": [(1, 1.0, 1.0)]})
    assert ranks(cluster.store, run_id) == []


def test_node_answers_where_its_ranks_stand(running):
    cluster, run_id, fence = running
    assert stacks(cluster.store, run_id).requested_at is None
    request_stacks(cluster.store, run_id, 111.0)
    assert cluster.assignments()[0].stacks_requested_at == 111.0
    assert not stacks(cluster.store, run_id).complete
    assert answer(cluster, fence, 111.0) == run_id
    shown = stacks(cluster.store, run_id)
    assert shown.complete
    assert shown.nodes[0].ranks == {0: [frame(41)], 1: []}


def test_an_answer_to_an_older_question_does_not_count(running):
    cluster, run_id, fence = running
    request_stacks(cluster.store, run_id, 111.0)
    answer(cluster, fence, 111.0)
    request_stacks(cluster.store, run_id, 120.0)
    assert stacks(cluster.store, run_id).nodes == []


def test_only_ranks_that_exist_can_be_asked(running):
    cluster, run_id, fence = running
    cluster.report(fence, "succeeded")
    with pytest.raises(WrongState, match="only running ranks"):
        request_stacks(cluster.store, run_id, 111.0)
    with pytest.raises(NoSuchRun):
        request_stacks(cluster.store, "nobody", 111.0)
    with pytest.raises(Superseded):
        stacks_reported(cluster.store, cluster.node_id, 99, 0, Stacks(requested_at=1.0, at=1.0, ranks={}))
    assert run_queries.run(cluster.store, run_id, cluster.now).state == "succeeded"
