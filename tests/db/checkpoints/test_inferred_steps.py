"""Checkpoints whose names have no step get it, and their loss, from what was printed around their saving."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from db.checkpoints import checkpoint_queries, checkpoint_reports
from db.checkpoints.inferred_steps import spread
from domain.messages import CheckpointOffer


@pytest.fixture
def printing(cluster):
    """A run that printed a validation loss after each of four epochs of twenty seconds."""
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    losses = enumerate((0.9, 0.5, 0.7, 0.8), start=1)
    cluster.points(
        fence, 0, 5, {"val/loss": [(epoch, loss, 100.0 + 20 * epoch) for epoch, loss in losses]}, source="printed"
    )
    return cluster, run_id, fence


def save(cluster, fence, path: str, written_at: float, step: int | None = None) -> None:
    sha256 = hashlib.sha256(path.encode()).hexdigest()
    offer = CheckpointOffer(path=path, step=step, size_bytes=3, sha256=sha256, written_at=written_at)
    row = checkpoint_reports.offered(cluster.store, cluster.node_id, fence, 0, offer, cluster.now)
    checkpoint_reports.completed(cluster.store, row.id, cluster.now)


def listed(cluster, run_id):
    return {view.name: view for view in checkpoint_queries.checkpoints(cluster.store, run_id)}


@pytest.mark.parametrize("delay_s", [-3.0, 0.5, 3.0], ids=["before its line", "after it", "later"])
def test_step_and_loss_are_those_printed_around_the_saving(printing, delay_s):
    cluster, run_id, fence = printing
    save(cluster, fence, "work/best.pt", 140.0 + delay_s)
    best = listed(cluster, run_id)["work/best.pt"]
    assert (best.step, best.step_is_inferred, best.loss, best.best) == (2, True, 0.5, True)


def test_the_best_of_several_checkpoints_of_a_printing_script_is_marked(printing):
    cluster, run_id, fence = printing
    for epoch in (1, 2, 3, 4):
        save(cluster, fence, f"work/net_{epoch}.pt", 101.0 + 20 * epoch)
    views = listed(cluster, run_id)
    assert [view.step for _, view in sorted(views.items())] == [1, 2, 3, 4]
    assert [name for name, view in views.items() if view.best] == ["work/net_2.pt"]


def test_a_number_in_the_name_counts_where_it_was_printed_then(printing):
    cluster, run_id, fence = printing
    cluster.points(fence, 5, 9, {"train/loss": [(step, 0.1, 161.0) for step in range(50, 61)]}, source="printed")
    save(cluster, fence, "work/model_54.pt", 160.0)
    assert listed(cluster, run_id)["work/model_54.pt"].step == 54


def test_a_number_in_the_name_that_counts_epochs_is_no_step(printing):
    cluster, run_id, fence = printing
    cluster.points(
        fence, 5, 9, {"train/loss": [(step, 0.1, 150 + step / 5) for step in range(1, 21)]}, source="printed"
    )
    save(cluster, fence, "work/epoch_1.pt", 154.0)
    assert listed(cluster, run_id)["work/epoch_1.pt"].step == 20


def test_a_step_in_the_name_is_not_inferred(printing):
    cluster, run_id, fence = printing
    save(cluster, fence, "work/step_3.pt", 120.0, step=3)
    view = listed(cluster, run_id)["work/step_3.pt"]
    assert (view.step, view.step_is_inferred, view.loss) == (3, False, 0.7)


def test_without_any_loss_nothing_is_inferred(cluster):
    run_id = cluster.launch()
    save(cluster, cluster.assignments()[0].fence, "work/last.pt", 120.0)
    view = listed(cluster, run_id)["work/last.pt"]
    assert (view.step, view.step_is_inferred, view.loss) == (None, False, None)


def test_a_part_has_no_step_and_is_never_the_best(printing):
    cluster, run_id, fence = printing
    save(cluster, fence, "work/optimizer.pt", 140.0)
    view = listed(cluster, run_id)["work/optimizer.pt"]
    assert (view.is_part, view.step, view.best, view.latest) == (True, None, False, False)


def test_lines_that_were_read_at_once_were_printed_one_after_another():
    times = np.array([10.0, 15.0, 15.0, 15.0, 15.0, 20.0])
    assert spread(times).tolist() == [10.0, 10.625, 11.875, 13.125, 14.375, 20.0]
    ended = np.array([10.0, 11.0, 12.0, 15.0, 15.0])  # the last lines were read late
    assert spread(ended).tolist() == [10.0, 11.0, 12.0, 12.5, 13.5]
    assert spread(np.array([10.0, 9.0])).tolist() == [5.5, 8.5] and len(spread(np.array([]))) == 0
