"""The start of a run as its store knows it: in the queue, on its nodes, and beside the run before."""

from __future__ import annotations

import pytest

from db.attempts.attempt_queries import previous_timeline, timeline
from db.exceptions import NoSuchRun
from domain.messages import NodeLoad, PhaseEnd
from tests.db.attempts.offers import view
from tests.db.cluster import send_heartbeat

WHOLE = {"placed": 101.0, "process": 103.0, "torch imported": 107.0, "first step": 109.0}


def ends(moments: dict[str, float]) -> list[PhaseEnd]:
    return [PhaseEnd(phase=phase, at=at) for phase, at in moments.items()]


def rows(cluster, run_id: str, now: float = 120.0) -> list[tuple[str | None, str, float]]:
    return [(phase.node, phase.phase, phase.seconds) for phase in timeline(cluster.store, run_id, now)]


def test_a_run_in_the_queue_has_no_node_yet(cluster):
    cluster.launch(gpus_per_node=2)
    waiting = cluster.launch(gpus_per_node=2)
    assert rows(cluster, waiting) == [(None, "queued", 20.0)]
    with pytest.raises(NoSuchRun):
        timeline(cluster.store, "nobody", 120.0)


def test_phases_arrive_with_reports_and_the_next_one_is_in_progress(cluster):
    run_id = cluster.launch()
    (task,) = cluster.assignments()
    assert rows(cluster, run_id) == [("gpu-1", "queued", 0.0), ("gpu-1", "placed", 20.0)]
    cluster.report(task.fence, "starting", timeline=ends({"placed": 101.0}))
    cluster.report(task.fence, "running", timeline=ends({"placed": 101.0, "process": 103.0}))
    assert rows(cluster, run_id)[1:] == [
        ("gpu-1", "placed", 1.0), ("gpu-1", "process", 2.0), ("gpu-1", "torch imported", 17.0),
    ]  # fmt: skip
    cluster.report(task.fence, "running", timeline=ends(WHOLE))
    assert rows(cluster, run_id)[-1] == ("gpu-1", "first step", 2.0)


def test_a_report_without_phases_keeps_those_that_came_before(cluster):
    run_id = cluster.launch()
    (task,) = cluster.assignments()
    cluster.report(task.fence, "running", timeline=ends(WHOLE))
    cluster.report(task.fence, "stopping")
    assert rows(cluster, run_id)[-1] == ("gpu-1", "first step", 2.0)


@pytest.mark.parametrize("spec", [{"probe": False}, {}], ids=["without the probe", "an older worker"])
def test_nothing_is_in_progress_where_nobody_sees_the_ranks(cluster, spec):
    run_id = cluster.launch(**spec)
    (task,) = cluster.assignments()
    moments = ends({"placed": 101.0, "process": 103.0}) if spec else None
    cluster.report(task.fence, "running", timeline=moments)
    assert rows(cluster, run_id)[-1][1] == ("process" if spec else "queued")


def test_a_run_that_failed_before_its_first_step_shows_until_when_it_came(cluster):
    run_id = cluster.launch()
    (task,) = cluster.assignments()
    cluster.report(task.fence, "running", timeline=ends({"placed": 101.0, "process": 103.0}))
    cluster.now = 110.0
    cluster.report(task.fence, "failed", exit_code=1)
    assert rows(cluster, run_id, now=999.0)[-1] == ("gpu-1", "torch imported", 7.0)


def test_times_of_a_node_are_corrected_by_its_clock(cluster):
    run_id = cluster.launch()
    (task,) = cluster.assignments()
    send_heartbeat(cluster.store, cluster.node_id, 101.0, NodeLoad(clock_offset_s=30.0))
    cluster.report(task.fence, "running", timeline=ends({phase: at + 30.0 for phase, at in WHOLE.items()}))
    assert rows(cluster, run_id)[1:3] == [("gpu-1", "placed", 1.0), ("gpu-1", "process", 2.0)]


def test_the_run_before_is_the_last_of_the_same_script_that_trained(cluster):
    def run(moments: dict[str, float], **spec) -> str:
        run_id = cluster.launch(**spec)
        (task,) = cluster.assignments()
        cluster.report(task.fence, "running", timeline=ends(moments))
        cluster.report(task.fence, "succeeded")
        cluster.now += 1.0
        return run_id

    first = run(WHOLE)
    run({"placed": 101.0})
    run(WHOLE, target="language_model")
    latest = run(WHOLE)
    before = previous_timeline(cluster.store, latest, 120.0)
    assert before is not None and before[0] == first
    assert previous_timeline(cluster.store, first, 120.0) is None


def test_the_run_says_what_it_does_until_its_first_step(cluster):
    run_id = cluster.launch(nodes=1, gpus_per_node=2)
    (task,) = cluster.assignments()
    ends = [PhaseEnd(phase="placed", at=101.0), PhaseEnd(phase="process", at=103.0)]
    cluster.report(task.fence, "starting", timeline=ends)
    assert view(cluster, run_id).waiting_for == "gpu-1 is importing torch"
    ends.append(PhaseEnd(phase="torch imported", at=109.0))
    cluster.report(task.fence, "running", timeline=ends)
    assert view(cluster, run_id).waiting_for == "gpu-1 is waiting for all ranks to meet (rendezvous)"
    cluster.points(task.fence, 0, 10, {"loss": [(1, 0.5, 111.0)]})
    assert view(cluster, run_id).waiting_for is None
