"""A series of any length is stored once and read in small pieces."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.metrics import columns, points
from db.metrics.curves import SeriesRow, StepRange, thinned_points
from db.metrics.points import BUCKET_POINTS, CHUNK_POINTS, pack, unpack
from db.models import Chunk

pytestmark = pytest.mark.both_stores

values = st.floats(allow_nan=True, allow_infinity=True)
point_lists = st.lists(st.tuples(st.integers(0, 2**62), values, st.floats(0, 2e9)), max_size=40)


def curve(count: int, start: int = 0) -> list[tuple[int, float, float]]:
    return [(i, math.sin(i / 50), float(i)) for i in range(start, start + count)]


@given(point_lists)
def test_packing_loses_nothing_not_even_nan_and_negative_zero(pairs):
    assert repr(unpack(pack(pairs))) == repr(pairs)


def write(store, series_id: int, count: int, batch: int) -> None:
    for start in range(0, count, batch):
        with store.write() as session:
            points.append(session, {series_id: (start, curve(min(batch, count - start), start))})


def series_row(cluster) -> int:
    cluster.launch()
    cluster.points(cluster.assignments()[0].fence, 0, 1, {"a": [(0, 0.0, 0.0)]})
    with cluster.store.read() as session:
        series_id = session.query(points.Chunk.series_id).scalar()
    with cluster.store.write() as session:
        session.query(Chunk).delete()
    return series_id


def test_every_point_is_read_back_in_order_whatever_the_batches(cluster):
    series_id = series_row(cluster)
    write(cluster.store, series_id, 3 * CHUNK_POINTS + 77, batch=100)
    with cluster.store.read() as session:
        assert points.read(session, series_id) == curve(3 * CHUNK_POINTS + 77)
        assert points.read(session, series_id, since_step=700) == curve(3 * CHUNK_POINTS + 77)[700:]
        assert points.read(session, series_id, since_step=70, until_step=300) == curve(400)[70:301]


def test_a_long_series_opens_by_reading_few_chunks_and_keeps_its_extremes(cluster):
    series_id = series_row(cluster)
    count = 100_000
    spiked = [(s, 99.0 if s == 54_321 else v, w) for s, v, w in curve(count)]
    with cluster.store.write() as session:
        points.append(session, {series_id: (0, spiked)})
    row = SeriesRow("run", 1, series_id, 0, "events", "a", count, 0, count - 1, 0.0, None, None, None)
    with cluster.store.read() as session:
        few = thinned_points(session, [row], 1000, StepRange())[series_id]
        assert 100 < len(few) <= 1000
        assert (54_321, 99.0, 54_321.0) in few
        assert few[-1][0] >= count - 2 * CHUNK_POINTS
        assert [p[0] for p in few] == sorted(p[0] for p in few)
        assert {type(step) for step, _, _ in few} == {int}
        window = thinned_points(session, [row], 500, StepRange(54_000, 54_400))[series_id]
        assert window == spiked[54_000:54_401]


def test_a_level_has_about_an_eighth_of_the_points_below(cluster):
    series_id = series_row(cluster)
    write(cluster.store, series_id, 20_000, batch=5000)
    with cluster.store.read() as session:
        rows = session.query(Chunk.level, Chunk.count).all()
    per_level: dict[int, int] = {}
    for level, count in rows:
        per_level[level] = per_level.get(level, 0) + count
    assert per_level[0] == 20_000
    assert per_level[1] <= 20_000 // 4
    assert per_level[2] < per_level[1] // 3


def test_buckets_divide_chunks():
    assert CHUNK_POINTS % BUCKET_POINTS == 0


def test_many_series_are_thinned_as_each_alone():
    luck = np.random.default_rng(1)
    for _ in range(200):
        many = [luck.normal(size=luck.integers(0, 300)) for _ in range(luck.integers(0, 5))]
        for values in many[1:]:  # the first stays finite
            values[luck.random(len(values)) < luck.choice([0, 0.05, 1])] = luck.choice([np.nan, np.inf])
        most = int(luck.integers(1, 60))
        each = columns.picked_each(many, most)
        assert len(each) == len(many)
        for values, places in zip(many, each, strict=True):
            assert places.tolist() == columns.picked(values, most).tolist()
            assert len(places) <= max(most, 3) and (np.diff(places) > 0).all()
            finite = values[np.isfinite(values)]
            assert not finite.size or {finite.min(), finite.max()} <= {*values[places]}
