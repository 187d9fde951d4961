"""Points and bytes of many streams arrive in one transaction, each exactly once."""

from __future__ import annotations

import math

import pytest
from sqlalchemy import event, select

from db.attempts import attempt_queries
from db.exceptions import NotOwner, Superseded
from db.metrics import curves
from db.models import Series
from db.nodes.node_reports import register_node
from db.tasks import task_reports
from db.tasks.task_reports import Arrival, FileGrowth, FileState, StreamKey
from domain.messages import PointBatch
from tests.db.cluster import Cluster, facts

pytestmark = pytest.mark.both_stores


def points(fence: int, start: int, end: int, path: str = "events", **series) -> tuple[StreamKey, PointBatch]:
    batch = PointBatch(path=path, generation=0, start=start, end=end, series=series)
    return StreamKey(fence, 0, path, 0), batch


def log_of(fence: int) -> tuple[StreamKey, None]:
    return StreamKey(fence, 0, "logs/rank0.out", 0), None


@pytest.fixture
def fences(cluster: Cluster) -> list[int]:
    for _ in range(2):
        cluster.launch(gpus_per_node=1)
    return sorted(assignment.fence for assignment in cluster.assignments())


def curves_of(cluster: Cluster, fence: int) -> dict[str, list]:
    run_id = attempt_queries.run_of_attempt(cluster.store, fence)
    stored = curves.series(cluster.store, run_id, whole=True)
    return {tag: [(point[0], point[1]) for point in curve.points] for tag, curve in stored.items()}


def test_streams_of_several_attempts_take_one_transaction(cluster: Cluster, fences: list[int]) -> None:
    begun = []
    event.listen(cluster.store.database.writer, "begin", begun.append)
    a, b = fences
    offers = [
        points(a, 0, 10, loss=[(1, 0.5, 1.0)]),
        points(b, 0, 10, loss=[(1, 0.25, 1.0)], lr=[(1, 0.1, 1.0)]),
        points(a, 0, 7, "probe", step_time=[(1, 2.0, 1.0)]),
        log_of(b),
    ]
    outcomes = task_reports.streams_arrived(cluster.store, cluster.node_id, offers)
    assert len(begun) == 1
    assert [outcome.offset for outcome in outcomes[:3] if isinstance(outcome, Arrival)] == [10, 10, 7]
    assert isinstance(outcomes[3], FileState) and outcomes[3].size_bytes == 0
    assert curves_of(cluster, a) == {"loss": [(1, 0.5)], "step_time": [(1, 2.0)]}
    assert curves_of(cluster, b) == {"loss": [(1, 0.25)], "lr": [(1, 0.1)]}


def test_repeated_or_early_points_are_not_stored(cluster: Cluster, fences: list[int]) -> None:
    a, b = fences
    first = [points(a, 0, 10, loss=[(1, 0.5, 1.0)]), points(b, 0, 10, loss=[(1, 0.5, 1.0)])]
    task_reports.streams_arrived(cluster.store, cluster.node_id, first)
    later = [first[0], points(b, 10, 20, loss=[(2, 0.4, 2.0)]), points(a, 30, 40, loss=[(9, 9.0, 9.0)])]
    outcomes = task_reports.streams_arrived(cluster.store, cluster.node_id, later)
    assert [(each.offset, each.stored) for each in outcomes] == [(10, False), (20, True), (10, False)]
    assert curves_of(cluster, a) == {"loss": [(1, 0.5)]}
    assert curves_of(cluster, b) == {"loss": [(1, 0.5), (2, 0.4)]}


def test_pieces_of_one_series_are_stored_in_their_order(cluster: Cluster, fences: list[int]) -> None:
    (a, _), steps = fences, iter(range(1000))
    offers = [
        points(a, 300 * n, 300 * (n + 1), loss=[(next(steps), float(n), 1.0) for _ in range(300)]) for n in range(3)
    ]
    outcomes = task_reports.streams_arrived(cluster.store, cluster.node_id, [*offers, offers[1]])
    assert [each.offset for each in outcomes] == [300, 600, 900, 900]
    stored = curves_of(cluster, a)["loss"]
    assert stored == [(step, float(step // 300)) for step in range(900)]
    with cluster.store.read() as session:
        assert session.scalars(select(Series.last_value)).one() == 2.0


def test_points_for_another_node_are_refused_and_delay_no_others(cluster: Cluster, fences: list[int]) -> None:
    a, b = fences
    other = register_node(cluster.store, facts("gpu-2"), None, 100.0).node_id
    offers = [points(a, 0, 10, loss=[(1, 0.5, 1.0)]), points(10_000, 0, 10, loss=[(1, 0.5, 1.0)]), log_of(b)]
    refused = task_reports.streams_arrived(cluster.store, other, offers)
    assert [type(each) for each in refused] == [NotOwner, Superseded, NotOwner]
    outcomes = task_reports.streams_arrived(cluster.store, cluster.node_id, offers)
    assert [type(each) for each in outcomes] == [Arrival, Superseded, FileState]
    assert curves_of(cluster, a) == {"loss": [(1, 0.5)]} and curves_of(cluster, b) == {}


def test_series_at_different_lengths_grow_together(cluster: Cluster, fences: list[int]) -> None:
    lengths = {fences[0]: 700, fences[1]: 13}
    for fence, length in lengths.items():
        first = [(step, float(step), 1.0) for step in range(length)]
        task_reports.streams_arrived(cluster.store, cluster.node_id, [points(fence, 0, length, loss=first)])
    offers = [points(f, n, n + 1, loss=[(n, math.inf, 1.0)], fresh=[(n, 1.0, 1.0)]) for f, n in lengths.items()]
    task_reports.streams_arrived(cluster.store, cluster.node_id, offers)
    for fence, length in lengths.items():
        stored = curves_of(cluster, fence)
        assert stored["loss"] == [*((s, float(s)) for s in range(length)), (length, math.inf)]
        assert stored["fresh"] == [(length, 1.0)]


def test_bytes_of_several_files_become_durable_together(cluster: Cluster, fences: list[int]) -> None:
    states = task_reports.streams_arrived(cluster.store, cluster.node_id, [log_of(fence) for fence in fences])
    a, b = (state.id for state in states if isinstance(state, FileState))
    assert task_reports.files_grew(cluster.store, [FileGrowth(a, 0, 5), FileGrowth(b, 0, 9)]) == [5, 9]
    assert task_reports.files_grew(cluster.store, [FileGrowth(a, 0, 7), FileGrowth(b, 9, 12)]) == [5, 12]
