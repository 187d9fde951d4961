"""A run that was resumed stands where its last attempt stood, until the new one logs."""

from __future__ import annotations

import math

from db.runs import run_requests
from tests.db.attempts.offers import store_checkpoint, view


def resumed(cluster, *losses: float) -> tuple[str, int]:
    """A run with these losses that was stopped and resumed, and the number of its new attempt."""
    run_id = cluster.launch(gpus_per_node=1, max_steps=100)
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    cluster.points(assignment.fence, 0, 9, {"loss": [(n, loss, 100.0 + n) for n, loss in enumerate(losses)]})
    store_checkpoint(cluster, assignment.fence)
    run_requests.request_stop(cluster.store, run_id, 110.0)
    cluster.report(assignment.fence, "stopped")
    run_requests.resume(cluster.store, run_id, 120.0)
    cluster.place()
    return run_id, cluster.assignments()[0].fence


def test_resumed_run_shows_the_last_step_and_loss_but_no_speed(cluster):
    run_id, fence = resumed(cluster, 4.0, 3.0, 2.0)
    run = view(cluster, run_id)
    assert (run.attempt, run.step, run.last_loss, run.progress) == (2, 2, 2.0, 0.02)
    assert (run.throughput, run.eta_s) == (None, None)
    cluster.points(fence, 0, 9, {"loss": [(1, 2.5, 200.0)]})
    run = view(cluster, run_id)
    assert (run.step, run.last_loss) == (1, 2.5)


def test_broken_loss_of_an_earlier_attempt_is_none_of_the_new_one(cluster):
    run_id, _ = resumed(cluster, 4.0, math.nan)
    run = view(cluster, run_id)
    assert run.last_loss is None and run.loss_not_finite_since is None and run.attention is None
