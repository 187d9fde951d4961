"""Curves of many runs are read at once, and hold what reading them one by one gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.metrics import points, run_results
from db.metrics.columns import thinned_each, unpacked, within
from db.metrics.curves import (
    SeriesRow,
    StepRange,
    curves_of_runs,
    ends_of,
    read_columns,
    series_rows,
    sources_of_runs,
    thinned_points,
)
from db.metrics.points import CHUNK_POINTS, pack
from db.models import Chunk
from db.runs import run_requests

VALUES = st.floats(allow_nan=True, allow_infinity=True)
POINTS = st.lists(st.tuples(st.integers(0, 2**52), VALUES, st.floats(0, 2e9)), max_size=40)


def noisy(count: int, seed: int) -> list[tuple[int, float, float]]:
    luck = np.random.default_rng(seed).normal(size=count)
    return [(step, math.sin(step / 900) + float(luck[step]), 1e9 + step) for step in range(count)]


def add(cluster, name: str, logged: list[tuple[int, float, float]]) -> str:
    """A run with one series of these points; returns its id."""
    run = cluster.launch()
    fence = cluster.assignments()[-1].fence
    cluster.report(fence, "running")
    cluster.points(fence, 0, 1, {name: logged})
    cluster.report(fence, "succeeded", exit_code=0)
    return run


@pytest.fixture
def lengths(cluster) -> dict[str, list[tuple[int, float, float]]]:
    """Runs with a series below one chunk, at its edge, and with several levels."""
    counts = (1, 100, CHUNK_POINTS, CHUNK_POINTS + 1, 10_000)
    logged = [noisy(count, seed) for seed, count in enumerate(counts)]
    return {add(cluster, "train/loss", curve): curve for curve in logged}


@given(POINTS)
def test_columns_hold_what_was_packed(curve):
    columns = unpacked([pack(curve[:7]), pack(curve[7:])])
    assert repr([tuple(column) for column in columns.T.tolist()]) == repr(
        [(float(step), value, wall) for step, value, wall in curve]
    )


@given(st.lists(VALUES, max_size=700), st.integers(10, 200))
def test_thinning_keeps_the_extremes_and_that_something_was_not_finite(values, most):
    columns = np.array([range(len(values)), values, range(len(values))], dtype=float).reshape(3, -1)
    few = thinned_each([columns], most)[0][1].tolist()
    finite = [value for value in values if math.isfinite(value)]
    assert len(few) <= max(most, 3)
    kept = [value for value in few if math.isfinite(value)]
    assert not finite or (min(kept), max(kept)) == (min(finite), max(finite))
    assert all(map(math.isfinite, few)) == all(map(math.isfinite, values))


def test_all_runs_are_read_at_once_each_with_its_extremes_and_its_end(cluster, lengths):
    curves = curves_of_runs(cluster.store, [*lengths], ["train/loss", "absent"], 500)
    assert sorted(curve.run_id for curve in curves) == sorted(lengths)
    for curve in curves:
        logged = lengths[curve.run_id]
        values = [value for _, value, _ in logged]
        assert curve.columns.shape[1] <= 500
        assert (curve.columns[1].min(), curve.columns[1].max()) == (min(values), max(values))
        assert set(zip(*curve.columns.tolist(), strict=True)) <= set(logged)
        if len(logged) <= 500:
            assert curve.columns.shape[1] == len(logged)


def test_a_window_is_read_finer_than_the_whole(cluster, lengths):
    long = max(lengths, key=lambda run: len(lengths[run]))
    (curve,) = curves_of_runs(cluster.store, [long], ["train/loss"], 500, StepRange(6_000, 6_400))
    assert list(zip(*curve.columns.tolist(), strict=True)) == lengths[long][6_000:6_401]


def test_few_of_many_chunks_are_read(cluster, lengths):
    with cluster.store.read() as session:
        rows = series_rows(session, [*lengths])
        read = read_columns(session, rows, 500)
        total = session.query(Chunk).count()
    assert total > 40 and sum(columns.shape[1] for columns in read.values()) < 5 * 800


def test_constant_series_have_fewer_points_above_and_are_read_whole(cluster):
    run = add(cluster, "train/lr", [(step, 1.0, 1e9 + step) for step in range(5000)])
    (curve,) = curves_of_runs(cluster.store, [run], ["train/lr"], 50)
    assert curve.columns[0, 0] < 16 and curve.columns[0, -1] > 4900


def test_a_newer_attempt_replaces_points_from_its_first_step_on():
    firsts = ((1, 0), (2, 60), (3, 40))
    rows = [SeriesRow("a", i, i, 0, "events", "loss", 99, first, 99, 0.1, 0.1, 3.0, None) for i, first in firsts]
    assert ends_of(rows) == {1: 39, 2: 39, 3: None}


def test_names_tell_the_source_of_each_series(cluster):
    run = add(cluster, "train/loss", noisy(3, 0))
    other = add(cluster, "val/loss", noisy(3, 0))
    assert sources_of_runs(cluster.store, [run, other, "missing"]) == {
        run: {"train/loss": "events"}, other: {"val/loss": "events"}, "missing": {}
    }  # fmt: skip


def test_results_are_the_last_and_the_best_value_and_the_last_step(cluster, lengths):
    curve = run_results.results(cluster.store, [*lengths])
    for run, logged in lengths.items():
        result = curve[run]["train/loss"]
        assert (result.last, result.steps) == (logged[-1][1], logged[-1][0])
        assert result.best == min(value for _, value, _ in logged)


def test_results_leave_out_the_points_that_a_newer_attempt_replaced(cluster):
    """The replaced end holds both extremes of the first attempt, and what is not finite counts in neither."""
    logged = [
        [(0, 5.0, 1e9), (1, math.nan, 1e9), (2, 0.4, 1e9), (3, 9.0, 1e9), (4, 0.1, 1e9)],
        [(3, 0.6, 1e9), (4, -math.inf, 1e9), (5, 0.5, 1e9)],
        [(9, 0.7, 1e9)],
    ]
    run = cluster.launch()
    for curve in logged:
        if curve is not logged[0]:
            run_requests.resume(cluster.store, run, cluster.now)
            cluster.place()
        fence = cluster.assignments()[-1].fence
        cluster.report(fence, "running")
        cluster.points(fence, 0, 1, {"train/loss": curve})
        cluster.report(fence, "succeeded", exit_code=0)
    result = run_results.results(cluster.store, [run])[run]["train/loss"]
    assert (result.lowest, result.highest, result.best) == (0.4, 5.0, 0.4)
    assert (result.last, result.steps) == (0.7, 9)


def test_within_takes_both_ends():
    columns = np.array([[1.0, 2, 3, 4]] * 3)
    assert within(columns, 2, 3)[0].tolist() == [2, 3]
    assert within(columns, None, None) is columns


def test_points_are_read_as_before(cluster, lengths):
    """The reader of one series and that of many agree point by point."""
    with cluster.store.read() as session:
        for row in series_rows(session, [*lengths]):
            whole = read_columns(session, [row], 10**9)[row.id]
            assert list(zip(*whole.tolist(), strict=True)) == points.read(session, row.id)


def test_steps_beyond_2_to_the_53_are_rounded_in_thinned_curves_only(cluster):
    largest = 2**53
    logged = [(largest - 2, 1.0, 1.0), (largest, 2.0, 2.0), (largest + 1, 3.0, 3.0), (largest + 3, 4.0, 4.0)]
    run = add(cluster, "hash", logged)
    with cluster.store.read() as session:
        rows = series_rows(session, [run])
        thinned = thinned_points(session, rows, 100, StepRange())[rows[0].id]
        stored = points.read(session, rows[0].id)
    assert [step for step, _, _ in stored] == [step for step, _, _ in logged]
    assert [step for step, _, _ in thinned] == [largest - 2, largest, largest, largest + 4]
