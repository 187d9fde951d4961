"""The gradient reduction and the arithmetic of a run are read back from the points of its latest attempt."""

from __future__ import annotations

from db.metrics.performance import arithmetic_of, reduction_of
from domain.performance.efficiency import Arithmetic, Reduction

FIGURES = {
    "buckets": 2.0,
    "gradient_bytes": 3000.0,
    "largest_bytes": 2000.0,
    "rebuilt": 1.0,
    "unused_bytes": 0.0,
    "static_graph": 0.0,
}


def test_the_latest_figures_of_the_latest_attempt_are_read(cluster):
    run_id = cluster.launch()
    assert reduction_of(cluster.store, run_id) is None
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    series = {f"ddp/{name}": [(3, value, 1.0)] for name, value in FIGURES.items()}
    timed = {"ddp/communication_s": [(3, 0.4, 1.0), (9, 0.2, 2.0)]}
    cluster.points(assignment.fence, 0, 10, series | timed, source="probe")
    facts = Reduction(2, 3000.0, 2000.0, rebuilt=True, unused_bytes=0.0, static_graph=False, communication_s=0.2)
    assert reduction_of(cluster.store, run_id) == (facts, 2, None)


def test_arithmetic_takes_the_size_and_the_tokens(cluster):
    run_id = cluster.launch()
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    cluster.points(assignment.fence, 0, 10, {"tokens_per_s": [(3, 500.0, 1.0)]}, source="probe")
    assert arithmetic_of(cluster.store, run_id) is None
    cluster.points(assignment.fence, 10, 20, {"model/parameters": [(0, 1000.0, 1.0)]}, source="probe")
    arithmetic = arithmetic_of(cluster.store, run_id)
    assert arithmetic is not None and (arithmetic.parameters, arithmetic.tokens_per_s, arithmetic.ranks) == (
        1e3,
        500.0,
        2,
    )
    assert isinstance(arithmetic, Arithmetic)
