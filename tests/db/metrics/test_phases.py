"""Totals of phases are read back by rank, and the server's own finding stays when a node reports its list."""

from __future__ import annotations

import pytest

from dashboard.service import live_attempts
from db.exceptions import NoSuchRun
from db.findings.findings import finding_judged, findings, findings_reported
from db.metrics.performance import phase_counts, phase_totals
from domain.messages import Finding
from domain.performance.slow_ranks import KIND


@pytest.fixture
def running(cluster):
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    return cluster, run_id, assignment.fence


def points(first: int, *totals: float, start: float = 100.0) -> list[tuple[int, float, float]]:
    return [(first + 10 * n, total, start + n) for n, total in enumerate(totals)]


def test_totals_are_joined_by_step_and_what_began_later_was_zero(running):
    cluster, run_id, fence = running
    series = {
        "rank0/phases/data_s": points(11, 1.0, 2.0, 3.0),
        "rank0/phases/checkpoint_s": points(21, 5.0, 6.0, start=101.0),
        "rank0/step_time_s": points(11, 0.1, 0.1),
    }
    cluster.points(fence, 0, 10, series, source="probe")
    (totals,), world_size = phase_totals(cluster.store, run_id)
    assert (totals.rank, totals.node, world_size) == (0, "gpu-1", 2)
    assert (list(totals.steps), list(totals.walls)) == ([11, 21, 31], [100.0, 101.0, 102.0])
    assert totals.seconds == {"data_s": [1.0, 2.0, 3.0], "checkpoint_s": [0.0, 5.0, 6.0]}
    assert totals.mean(11, 31)["checkpoint_s"] == pytest.approx(0.3)
    (newer,), _ = phase_totals(cluster.store, run_id, since_step=20)
    assert list(newer.steps) == [21, 31]


def test_only_the_newest_of_many_records_are_read_unless_all_are_asked_for(running):
    cluster, run_id, fence = running
    cluster.points(fence, 0, 10, {"rank0/phases/data_s": points(1, *map(float, range(1000)))}, source="probe")
    (recent,), _ = phase_totals(cluster.store, run_id)
    (whole,), _ = phase_totals(cluster.store, run_id, since_step=0)
    assert (len(recent.steps), len(whole.steps)) == (1000 - 2 * 256, 1000)
    assert recent.steps[-1] == whole.steps[-1] == 9991


def test_a_rank_that_torchrun_restarted_begins_again(running):
    cluster, run_id, fence = running
    both = [*points(11, 1.0, 2.0), *points(11, 0.5, 0.9)]
    cluster.points(fence, 0, 10, {"rank0/phases/data_s": both}, source="probe")
    (totals,), _ = phase_totals(cluster.store, run_id)
    assert (list(totals.steps), totals.seconds["data_s"]) == ([11, 21], [0.5, 0.9])


def test_a_run_without_records_has_no_ranks_and_an_unknown_one_is_refused(running):
    cluster, run_id, _ = running
    assert phase_totals(cluster.store, run_id) == ([], 2)
    with pytest.raises(NoSuchRun):
        phase_totals(cluster.store, "zzzzzzzzzz")


def test_a_slow_rank_stays_until_the_server_judges_otherwise(running):
    cluster, run_id, fence = running
    slow = Finding(kind=KIND, evidence="Rank 1 waits.", meaning="", fix="")
    assert finding_judged(cluster.store, fence, KIND, slow, 5.0) == run_id
    assert finding_judged(cluster.store, fence, KIND, slow, 6.0) is None
    findings_reported(cluster.store, cluster.node_id, fence, 0, [], 7.0)
    (stored,) = findings(cluster.store, run_id)
    assert (stored.kind, stored.first_at, stored.gone_at) == (KIND, 5.0, None)
    assert finding_judged(cluster.store, fence, KIND, None, 8.0) == run_id
    assert finding_judged(cluster.store, fence, KIND, None, 9.0) is None
    assert findings(cluster.store, run_id)[0].gone_at == 8.0


def test_points_of_phases_are_counted_by_attempt(running):
    cluster, _, fence = running
    assert phase_counts(cluster.store, [fence]) == {}
    cluster.points(fence, 0, 10, {"rank0/phases/data_s": points(1, 1.0, 2.0)}, source="probe")
    cluster.points(fence, 10, 20, {"rank0/step_time_s": points(1, 0.1)}, source="probe")
    assert phase_counts(cluster.store, [fence, fence + 1]) == {fence: 2}


def test_a_run_is_judged_again_when_points_have_arrived(running, monkeypatch):
    cluster, run_id, fence = running
    judged = []

    def totals(store, run_id):
        judged.append(run_id)
        return phase_totals(store, run_id)

    monkeypatch.setattr(live_attempts, "phase_totals", totals)
    judge = live_attempts.SlowRanks(cluster.store, lambda run_id: None, lambda: True)
    arrivals = {20: (0, 10), 60: (10, 20)}
    for second in range(0, 100, 20):
        if second in arrivals:
            series = {"rank0/phases/data_s": points(second, 1.0, 2.0)}
            cluster.points(fence, *arrivals[second], series, source="probe")
        judge.update(1000.0 + second)
    assert judged == [run_id, run_id]  # at 20 and 60
