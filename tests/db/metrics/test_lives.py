"""Points that share a step are all kept; a later life of a script, in a file of its own, replaces those it repeats."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import pairwise

import pytest

from dashboard.exports.series_files import csv_file
from db.metrics import curves, run_results
from db.metrics.curves import series
from db.metrics.points import point_counts, points_since
from db.runs import run_queries
from db.tasks import task_reports
from db.tasks.task_reports import StreamKey
from domain.messages import Point, PointBatch
from tests.db.cluster import Cluster

FIRST = [(step, float(step), 10.0 + step * 0.04) for step in range(150)]
SECOND = [(step, step + 1000.0, 20.0 + step * 0.04) for step in range(100, 200)]
RIGHT = FIRST[:100] + SECOND


def trained(cluster: Cluster, *lives: Sequence[Point], tag: str = "loss", pieces: int = 1) -> str:
    """A run whose script wrote each life into a file of its own, which arrives in some pieces."""
    run = cluster.launch(gpus_per_node=1)
    fence = next(one.fence for one in cluster.assignments() if one.run_id == run)
    for number, life in enumerate(lives):
        size = -(-len(life) // pieces)
        for at in range(0, len(life), size):
            cluster.points(fence, at, at + size, {tag: list(life[at : at + size])}, path=f"events.{number}")
    return run


def exported(cluster: Cluster, run: str) -> list[tuple[int, float]]:
    rows = csv.DictReader(io.StringIO(b"".join(csv_file(cluster.store, [run])).decode()))
    return [(int(row["step"]), float(row["value"])) for row in rows]


def values(points: Sequence[Point]) -> list[tuple[int, float]]:
    return [point[:2] for point in points]


# -- one file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([0] * 100, id="without a step"),
        pytest.param([at // 10 for at in range(100)], id="fractions, cut off"),
        pytest.param([*range(20)] * 5, id="anew in every epoch"),
        pytest.param([-5, 2**63 - 1, 3], id="odd ones"),
        pytest.param([*range(150), *range(100, 200)], id="back in one file"),
    ],
)
@pytest.mark.parametrize("pieces", [1, 3])
def test_one_file_keeps_all_its_points(cluster: Cluster, steps: list[int], pieces: int) -> None:
    points = [(step, float(at), 10.0 + at) for at, step in enumerate(steps)]
    run = trained(cluster, points, pieces=pieces)
    view = series(cluster.store, run)["loss"]
    result = run_results.results(cluster.store, [run])[run]["loss"]
    assert view.points == points
    assert exported(cluster, run) == values(points)
    assert [value for _, value, _ in series(cluster.store, run, max_points=1000)["loss"].points] == [
        value for _, value, _ in points
    ]
    assert (result.last, result.highest) == (len(steps) - 1, len(steps) - 1)
    repeats = sum(step <= max(steps[:at]) for at, step in enumerate(steps) if at)
    assert [(segment.count, segment.repeats) for segment in view.segments] == [(len(steps), repeats)]
    assert not [line for line in run_queries.history(cluster.store, run) if "went back" in line.text]


def test_steps_that_rise_repeat_nothing_in_any_pieces(cluster: Cluster) -> None:
    run = trained(cluster, FIRST, pieces=7)
    assert series(cluster.store, run)["loss"].segments[0].repeats == 0


def test_samples_of_the_hardware_may_share_a_step(cluster: Cluster) -> None:
    cluster.launch(gpus_per_node=1)
    (task,) = cluster.assignments()
    samples = [(5, 1.0, 1.0), (5, 2.0, 2.0), (4, 3.0, 3.0)]
    for number in range(3):
        cluster.points(
            task.fence, 0, 10, {"cpu_percent": samples[number : number + 1]}, f"hardware.{number}", source="hardware"
        )
    assert series(cluster.store, task.run_id, source="hardware")["hardware/cpu_percent"].points == samples


# -- a later file that goes back -------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [1, 7, 50])
def test_the_later_life_wins_from_its_first_step_on(cluster: Cluster, pieces: int) -> None:
    run = trained(cluster, FIRST, SECOND, pieces=pieces)
    (curve,) = curves.curves_of_runs(cluster.store, [run], ["loss"], 1000)
    result = run_results.results(cluster.store, [run])[run]["loss"]
    assert series(cluster.store, run)["loss"].points == RIGHT
    assert series(cluster.store, run, max_points=1000)["loss"].points == RIGHT
    assert series(cluster.store, run, whole=True)["loss"].points == FIRST + SECOND
    assert curve.columns[1].tolist() == [value for _, value, _ in RIGHT]
    assert exported(cluster, run) == values(RIGHT)
    assert (result.last, result.steps, result.lowest, result.highest) == (1199.0, 199, 0.0, 1199.0)


def test_three_lives_each_replace_what_they_repeat(cluster: Cluster) -> None:
    third = [(step, step + 2000.0, 40.0 + step) for step in range(50, 60)]
    run = trained(cluster, FIRST, SECOND, third)
    assert series(cluster.store, run)["loss"].points == FIRST[:50] + third
    assert exported(cluster, run) == values(FIRST[:50] + third)
    result = run_results.results(cluster.store, [run])[run]["loss"]
    assert (result.lowest, result.highest) == (0.0, 2059.0)


def test_files_that_go_on_are_one_life(cluster: Cluster) -> None:
    lives = [FIRST[at : at + 30] for at in range(0, 150, 30)]
    run = trained(cluster, *lives)
    assert len(series(cluster.store, run)["loss"].segments) == 1
    assert series(cluster.store, run)["loss"].points == FIRST


def test_lives_of_one_bundle_are_told_apart(cluster: Cluster) -> None:
    cluster.launch(gpus_per_node=1)
    (task,) = cluster.assignments()
    offers = [
        (StreamKey(task.fence, 0, f"tb/{number}", 0),
         PointBatch(path=f"tb/{number}", generation=0, start=0, end=9, series={"loss": own, "rare": own[-1:]}))
        for number, own in enumerate((FIRST, SECOND, SECOND[:20]))
    ]  # fmt: skip
    outcomes = task_reports.streams_arrived(cluster.store, cluster.node_id, offers)
    assert [set(one.begun) for one in outcomes if isinstance(one, task_reports.Arrival)] == [
        set(), {"loss"}, {"loss", "rare"},
    ]  # fmt: skip
    assert series(cluster.store, task.run_id)["loss"].points == FIRST[:100] + SECOND[:20]


def test_last_points_of_the_earlier_file_stay_in_its_life(cluster: Cluster) -> None:
    run = trained(cluster, FIRST[:140], SECOND)
    (task,) = cluster.assignments()
    cluster.points(task.fence, 140, 150, {"loss": FIRST[140:]}, path="events.0")
    assert series(cluster.store, run)["loss"].points == RIGHT
    assert series(cluster.store, run, whole=True)["loss"].points == FIRST + SECOND


def test_a_replaced_file_begins_anew(cluster: Cluster) -> None:
    run = cluster.launch(gpus_per_node=1)
    (task,) = cluster.assignments()
    cluster.points(task.fence, 0, 10, {"loss": FIRST})
    again = PointBatch(path="events", generation=1, start=0, end=10, series={"loss": SECOND[:5]})
    key = StreamKey(task.fence, 0, "events", 1)
    task_reports.streams_arrived(cluster.store, cluster.node_id, [(key, again)])
    assert series(cluster.store, run)["loss"].points == FIRST[:100] + SECOND[:5]


def test_the_history_tells_of_a_new_life_once(cluster: Cluster) -> None:
    run = cluster.launch(gpus_per_node=1)
    (task,) = cluster.assignments()
    cluster.points(task.fence, 0, 10, {"loss": FIRST, "rare": FIRST[::30]})
    cluster.points(task.fence, 0, 10, {"loss": SECOND[:1]}, path="later")
    cluster.points(task.fence, 10, 20, {"loss": SECOND[1:], "rare": SECOND[20::30]}, path="later")
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
    assert [step for step, _ in exported(cluster, run)] == list(range(40_000))


def test_another_dashboard_is_told_where_a_life_begins(cluster: Cluster) -> None:
    run = trained(cluster, FIRST)
    (task,) = cluster.assignments()
    counts = point_counts(cluster.store, run)
    cluster.points(task.fence, 0, 10, {"loss": SECOND[:20]}, path="later")
    (fresh,), counts = points_since(cluster.store, run, counts)
    assert (fresh.points, fresh.life, fresh.is_begun) == (SECOND[:20], 1, False)
    cluster.points(task.fence, 10, 20, {"loss": SECOND[20:]}, path="later")
    (fresh,), _ = points_since(cluster.store, run, counts)
    assert (fresh.points, fresh.life, fresh.is_begun) == (SECOND[20:], 1, True)
