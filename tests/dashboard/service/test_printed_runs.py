"""A run that only prints has what one with a logger has: curve, loss, steps, progress, remaining time, samples/s."""

from __future__ import annotations

import math
from typing import Any

import pytest
from sqlalchemy import select

from dashboard.service.overview import LossCurves
from db.checkpoints import checkpoint_queries, checkpoint_reports
from db.models import Attempt, Run
from db.runs import run_queries
from db.search import run_search
from domain.messages import CheckpointOffer, Point
from domain.search.parser import parse
from domain.views import RunView
from tests.db.cluster import Cluster


def curve(*values: float, every: int = 10) -> list[Point]:
    return [(step * every, value, 100.0 + step * every) for step, value in enumerate(values)]


def start(cluster: Cluster, **spec) -> tuple[str, int]:
    run_id = cluster.launch(**spec)
    fence = next(one.fence for one in cluster.assignments() if one.run_id == run_id)
    cluster.report(fence, "running")
    return run_id, fence


def view(cluster: Cluster, run_id: str) -> RunView:
    shown = run_queries.run(cluster.store, run_id, cluster.now)
    assert shown is not None
    return shown


def found_by(cluster: Cluster, text: str) -> list[str]:
    query = select(Run.id).join(Attempt, Attempt.run_id == Run.id)
    with cluster.store.read() as session:
        return list(session.scalars(query.where(run_search.matches(parse(text, cluster.now), cluster.now))))


def test_a_run_that_only_prints_is_a_full_citizen(cluster: Cluster) -> None:
    run_id, fence = start(cluster, args=["--max-iters", "100"])
    cluster.points(fence, 0, 9, {"total_loss": curve(3.0, 2.0, 1.0), "lr": curve(0.1)}, source="printed")
    run = view(cluster, run_id)
    assert (run.step, run.last_loss, run.total_steps, run.progress) == (20, 1.0, 100, 0.2)
    assert run.eta_s == pytest.approx(80.0) and "last_loss" in run.inferred
    assert LossCurves().of(cluster.store, [run]) == {run_id: [3.0, 2.0, 1.0]}


def test_a_printed_loss_stands_in_beside_logged_series_without_one(cluster: Cluster) -> None:
    run_id, fence = start(cluster)
    cluster.points(fence, 0, 9, {"lr": curve(0.1, 0.2)})
    cluster.points(fence, 9, 18, {"train/loss": curve(2.0, 1.0)}, source="printed")
    run = view(cluster, run_id)
    assert run.last_loss == 1.0 and LossCurves().of(cluster.store, [run]) == {run_id: [2.0, 1.0]}


def test_a_logged_loss_takes_the_place_of_a_printed_one(cluster: Cluster) -> None:
    run_id, fence = start(cluster)
    cluster.points(fence, 0, 9, {"my_loss": curve(5.0, 4.0)})
    cluster.points(fence, 9, 18, {"train/loss": curve(2.0, 1.0)}, source="printed")
    run = view(cluster, run_id)
    assert run.last_loss == 4.0 and LossCurves().of(cluster.store, [run]) == {run_id: [5.0, 4.0]}


def test_the_printed_number_of_steps_counts_unless_it_cannot_be(cluster: Cluster) -> None:
    run_id, fence = start(cluster)
    cluster.points(fence, 0, 9, {"loss": curve(2, 1), "train/total_steps": curve(40.0)}, source="printed")
    assert view(cluster, run_id).total_steps == 40
    cluster.points(fence, 9, 12, {"loss": [(50, 1.0, 200.0)]}, source="printed")
    assert view(cluster, run_id).total_steps is None


def test_a_total_that_the_step_has_passed_is_dropped_wherever_it_comes_from(cluster: Cluster) -> None:
    run_id, fence = start(cluster, args=["--max-iters", "900"], max_steps=20)
    cluster.points(fence, 0, 9, {"loss": [(231, 1.0, 200.0)], "train/total_steps": curve(40.0)})
    run = view(cluster, run_id)
    assert (run.step, run.total_steps) == (231, 900)
    cluster.report(fence, "stopped")
    run_id, fence = start(cluster, max_steps=20)
    cluster.points(fence, 0, 9, {"loss": [(231, 1.0, 200.0)]})
    assert (view(cluster, run_id).total_steps, view(cluster, run_id).progress) == (None, None)


@pytest.mark.parametrize("spec", [{"epochs": 8}, {"args": ["--epochs", "8"]}, {}])
def test_progress_follows_from_epochs_where_steps_are_unknown(cluster: Cluster, spec: dict[str, Any]) -> None:
    run_id, fence = start(cluster, **spec)
    points = {"loss": curve(3, 2, 1, every=100), "epoch": curve(0, 1, 2, every=100)}
    if not spec:
        points["train/total_epochs"] = curve(8)
    cluster.points(fence, 0, 9, points, source="printed")
    cluster.now = 310.0
    run = view(cluster, run_id)
    assert (run.current_epoch, run.total_epochs, run.progress, run.total_steps) == (3, 8, 3 / 8, None)
    assert run.eta_s == pytest.approx(490.0)
    if "args" not in spec:  # which no search reads
        assert [found_by(cluster, text) for text in ("progress=0.375", "progress>0.38")] == [[run_id], []]
    cluster.points(fence, 9, 18, {"epoch": [(700, 7.0, 800.0)]}, source="printed")
    cluster.report(fence, "succeeded")
    run = view(cluster, run_id)
    assert (run.epoch, run.current_epoch, run.total_epochs, run.progress) == (7.0, 8.0, 8, 1.0)


def test_epochs_as_fractions_end_with_the_last_one(cluster: Cluster) -> None:
    run_id, fence = start(cluster, epochs=8)
    cluster.points(fence, 0, 9, {"train/loss": curve(3, 1), "train/epoch": curve(0.5, 7.98)})
    assert view(cluster, run_id).current_epoch == 7.98
    cluster.report(fence, "succeeded")
    assert view(cluster, run_id).current_epoch == 8


def test_headers_tell_an_epoch_when_the_next_begins(cluster: Cluster) -> None:
    run_id, fence = start(cluster)
    points = {"epoch": curve(*range(1, 8)), "train/total_epochs": curve(8)}
    cluster.points(fence, 0, 9, points, source="printed")
    assert view(cluster, run_id).progress == 7 / 8
    cluster.report(fence, "succeeded")
    assert view(cluster, run_id).current_epoch == 8


def test_samples_per_second_come_from_steps_and_the_batch(cluster: Cluster) -> None:
    run_id, fence = start(cluster, args=["--batch-size=4"], batch_size=None, target="/x/train.py", gpus_per_node=2)
    cluster.points(fence, 0, 9, {"steps_per_s": [(10, 5.0, 101.0)]}, source="probe")
    assert view(cluster, run_id).throughput == 40.0


def test_a_checkpoint_is_the_best_by_a_printed_validation_loss(cluster: Cluster) -> None:
    run_id, fence = start(cluster)
    cluster.points(fence, 0, 9, {"val/loss": curve(3.0, 1.0, 2.0)}, source="printed")
    for step in (0, 10, 20):
        offer = CheckpointOffer(
            path=f"work/{step}.pt", step=step, size_bytes=1, sha256=f"{step:064x}", written_at=100.0
        )
        row = checkpoint_reports.offered(cluster.store, cluster.node_id, fence, 0, offer, 100.0)
        checkpoint_reports.completed(cluster.store, row.id, 100.0)
    shown = {one.step: (one.loss, one.best) for one in checkpoint_queries.checkpoints(cluster.store, run_id)}
    assert shown == {0: (3.0, False), 10: (1.0, True), 20: (2.0, False)}


def test_small_curves_have_four_digits_and_finite_values_alone(cluster: Cluster) -> None:
    run_id, fence = start(cluster)
    values = (123456.7, 0.1 + 0.2, -2.71828e-9, 0.0, float("nan"), 1e300, float("inf"), 99996.0)
    cluster.points(fence, 0, 9, {"loss": curve(*values)})
    expected = [float(f"{value:.4g}") for value in values if math.isfinite(value)]
    assert LossCurves().of(cluster.store, [view(cluster, run_id)]) == {run_id: expected}
