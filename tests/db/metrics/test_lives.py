"""Scripts that go back to an earlier step: one value a step, wherever a curve is read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import pairwise

import pytest

from dashboard.exports.series_files import csv_file
from db.metrics import curves, run_results
from db.metrics.columns import counting_points
from db.metrics.curves import series
from db.runs import run_queries
from domain.messages import Point
from tests.db.cluster import Cluster

FIRST = [(step, float(step), 10.0 + step * 0.04) for step in range(150)]
SECOND = [(step, step + 1000.0, 20.0 + step * 0.04) for step in range(100, 200)]
RIGHT = FIRST[:100] + SECOND


def trained(cluster: Cluster, *batches: Sequence[Point], tag: str = "loss") -> str:
    run = cluster.launch(gpus_per_node=1)
    fence = next(one.fence for one in cluster.assignments() if one.run_id == run)
    for number, batch in enumerate(batches):
        cluster.points(fence, 100 * number, 100 * number + 100, {tag: list(batch)})
    return run


@pytest.mark.parametrize("pieces", [1, 7, 250])
def test_the_later_life_wins_from_its_first_step_on(cluster: Cluster, pieces: int) -> None:
    points, size = FIRST + SECOND, -(-250 // pieces)
    run = trained(cluster, *(points[at : at + size] for at in range(0, 250, size)))
    (curve,) = curves.curves_of_runs(cluster.store, [run], ["loss"], 1000)
    exported = list(csv.DictReader(io.StringIO(b"".join(csv_file(cluster.store, [run])).decode())))
    result = run_results.results(cluster.store, [run])[run]["loss"]
    assert series(cluster.store, run)["loss"].points == RIGHT
    assert series(cluster.store, run, max_points=1000)["loss"].points == RIGHT
    assert series(cluster.store, run, whole=True)["loss"].points == points
    assert curve.columns[1].tolist() == [value for _, value, _ in RIGHT]
    assert [(int(row["step"]), float(row["value"])) for row in exported] == [point[:2] for point in RIGHT]
    assert (result.last, result.steps, result.lowest, result.highest) == (1199.0, 199, 0.0, 1199.0)


def test_the_history_tells_of_a_new_life_once(cluster: Cluster) -> None:
    run = cluster.launch(gpus_per_node=1)
    (task,) = cluster.assignments()
    cluster.points(task.fence, 0, 10, {"loss": FIRST, "rare": FIRST[::30]})
    cluster.points(task.fence, 10, 20, {"loss": SECOND[:1]})
    cluster.points(task.fence, 20, 30, {"loss": SECOND[1:], "rare": SECOND[20::30]})
    texts = [line.text for line in run_queries.history(cluster.store, run)]
    assert [text for text in texts if "went back" in text] == [
        "the script started again: loss went back from step 149 to step 100, and its newer points count from there on"
    ]


def test_a_life_that_has_not_come_as_far_replaces_what_is_ahead(cluster: Cluster) -> None:
    run = trained(cluster, FIRST, SECOND[:20])
    assert series(cluster.store, run)["loss"].points == FIRST[:100] + SECOND[:20]
    assert series(cluster.store, run, since_step=130)["loss"].points == []
    assert series(cluster.store, run, since_step=110)["loss"].points == SECOND[10:20]
    assert run_results.results(cluster.store, [run])[run]["loss"].steps == 119


def test_replaced_extremes_are_no_results(cluster: Cluster) -> None:
    run = trained(cluster, [(0, 5.0, 1.0), (10, -7.0, 2.0), (20, 99.0, 3.0)], [(10, 4.0, 9.0), (20, 3.0, 10.0)])
    result = run_results.results(cluster.store, [run])[run]["loss"]
    assert (result.lowest, result.highest) == (3.0, 5.0)


def test_long_series_have_no_line_back(cluster: Cluster) -> None:
    first = [(step, 1.0, 0.01 * step) for step in range(30_000)]
    second = [(step, 2.0, 1000 + 0.01 * step) for step in range(15_000, 40_000)]
    run = trained(cluster, first, second)
    thinned = series(cluster.store, run, max_points=500)["loss"].points
    assert all(earlier[0] < later[0] for earlier, later in pairwise(thinned))
    assert all(value == 2.0 for step, value, _ in thinned if step > 15_100)
    exported = list(csv.DictReader(io.StringIO(b"".join(csv_file(cluster.store, [run])).decode())))
    assert [int(row["step"]) for row in exported] == list(range(40_000))


def test_samples_of_the_hardware_may_share_a_step(cluster: Cluster) -> None:
    cluster.launch(gpus_per_node=1)
    (task,) = cluster.assignments()
    samples = [(5, 1.0, 1.0), (5, 2.0, 2.0), (4, 3.0, 3.0)]
    cluster.points(task.fence, 0, 10, {"cpu_percent": samples}, source="hardware")
    assert series(cluster.store, task.run_id, source="hardware")["hardware/cpu_percent"].points == samples


def test_neighbours_that_threads_swapped_both_count() -> None:
    written = [(1, 0.1, 1.0), (3, 0.3, 1.2), (2, 0.2, 1.1), (4, 0.4, 1.3)]
    assert [step for step, _, _ in counting_points(written)] == [1, 2, 3, 4]
    assert counting_points([(7, 1.0, 1.0), (7, 2.0, 2.0)]) == [(7, 2.0, 2.0)]
