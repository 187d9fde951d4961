"""Checkpoints of runs: offered, listed, marked best, resumed from."""

from __future__ import annotations

import pytest

from db.checkpoints import checkpoint_queries, checkpoint_reports
from db.runs import run_queries, run_requests
from domain.requests.errors import InvalidRequest
from tests.db.attempts.offers import offer, store_checkpoint
from tests.db.statements import statements


def test_resume_takes_the_latest_complete_checkpoint(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    store_checkpoint(cluster, fence, path="work/step_20.pt", step=20, sha="b" * 64)
    latest = store_checkpoint(cluster, fence, path="work/step_30.pt", step=30, sha="c" * 64)
    checkpoint_reports.offered(cluster.store, cluster.node_id, fence, 0, offer("work/step_40.pt", 40, "d" * 64), 1.0)
    cluster.report(fence, "stopped")
    run_requests.resume(cluster.store, run_id, 200.0)
    cluster.place()
    assert cluster.assignments()[0].resume_from.checkpoint_id == latest


def test_resume_without_a_complete_checkpoint_begins_anew(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    checkpoint_reports.offered(cluster.store, cluster.node_id, fence, 0, offer("work/step_40.pt", 40, "d" * 64), 1.0)
    cluster.report(fence, "stopped")
    assert run_requests.resume(cluster.store, run_id, 200.0) == 2
    cluster.place()
    assert cluster.assignments()[0].resume_from is None
    assert "from the beginning" in "".join(line.text for line in run_queries.history(cluster.store, run_id))


def test_a_new_run_may_start_from_another_runs_checkpoint(cluster):
    run_id = cluster.launch()
    store_checkpoint(cluster, cluster.assignments()[0].fence)
    cluster.report(cluster.assignments()[0].fence, "succeeded")
    cluster.launch(resume=f"{run_id}:step_10.pt")
    assert cluster.assignments()[0].resume_from.name == "work/step_10.pt"
    with pytest.raises(InvalidRequest, match=r"no complete checkpoint 'step_99\.pt'"):
        cluster.launch(resume=f"{run_id}:step_99.pt")
    with pytest.raises(InvalidRequest, match="there is no run 'zzz'"):
        cluster.launch(resume="zzz")


def test_checkpoints_carry_the_loss_of_their_step_and_the_best_is_marked(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.points(fence, 0, 5, {"val/loss": [(10, 0.5, 0.0), (20, 0.7, 0.0)]})
    store_checkpoint(cluster, fence, path="a", step=10, sha="b" * 64)
    store_checkpoint(cluster, fence, path="b", step=20, sha="c" * 64)
    by_name = {c.name: c for c in checkpoint_queries.checkpoints(cluster.store, run_id)}
    assert (by_name["a"].loss, by_name["a"].best, by_name["a"].latest) == (0.5, True, False)
    assert (by_name["b"].loss, by_name["b"].best, by_name["b"].latest) == (0.7, False, True)


def test_without_a_validation_loss_no_checkpoint_is_the_best(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.points(fence, 0, 5, {"train/loss": [(10, 0.5, 0.0), (20, 0.7, 0.0)]})
    store_checkpoint(cluster, fence, path="a", step=10, sha="b" * 64)
    store_checkpoint(cluster, fence, path="b", step=20, sha="c" * 64)
    assert [(c.loss, c.best) for c in checkpoint_queries.checkpoints(cluster.store, run_id)] == [
        (0.7, False),
        (0.5, False),
    ]


def test_series_of_a_run_are_read_once_for_all_its_checkpoints(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.points(fence, 0, 5, {f"layer{n}/norm": [(10, 0.5, 0.0)] for n in range(5)})
    for step in range(4):
        store_checkpoint(cluster, fence, path=f"{step}.pt", step=step, sha=f"{step}" * 64)
    with statements(cluster.store) as made:
        assert len(checkpoint_queries.checkpoints(cluster.store, run_id)) == 4
    assert len([statement for statement, _ in made if "FROM series" in statement]) == 1


def test_a_checkpoint_is_offered_once_and_completed_once(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    first, second = store_checkpoint(cluster, fence), store_checkpoint(cluster, fence)
    assert first == second
    assert len(checkpoint_queries.checkpoints(cluster.store, run_id)) == 1
    assert sum("stored" in line.text for line in run_queries.history(cluster.store, run_id)) == 1


def test_a_checkpoint_the_script_overwrote_is_listed_once_in_its_last_version(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    first = store_checkpoint(cluster, fence, path="work/best.pt", step=None, sha="b" * 64)
    second = checkpoint_reports.offered(
        cluster.store, cluster.node_id, fence, 0, offer("work/best.pt", None, "c" * 64), cluster.now
    )
    assert {c.id for c in checkpoint_queries.checkpoints(cluster.store, run_id)} == {first, second.id}
    assert checkpoint_reports.completed(cluster.store, second.id, cluster.now) == [first]
    assert [c.id for c in checkpoint_queries.checkpoints(cluster.store, run_id)] == [second.id]


def test_a_checkpoint_an_attempt_started_from_stays(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    first = store_checkpoint(cluster, fence, path="work/best.pt", sha="b" * 64)
    cluster.report(fence, "stopped")
    run_requests.resume(cluster.store, run_id, 200.0)
    late = checkpoint_reports.offered(
        cluster.store, cluster.node_id, fence, 0, offer("work/best.pt", 11, "c" * 64), cluster.now
    )
    assert checkpoint_reports.completed(cluster.store, late.id, cluster.now) == []
    assert first in {c.id for c in checkpoint_queries.checkpoints(cluster.store, run_id)}
