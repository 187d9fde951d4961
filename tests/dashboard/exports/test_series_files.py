"""Every point of a run is in its CSV, Parquet and JSON file, as it was stored."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator

import pyarrow.parquet
import pytest

from dashboard.exports import series_files
from dashboard.exports.series_files import csv_file, json_file, parquet_file
from db.engine import Store
from tests.db.cluster import Cluster

Row = tuple[str, str, str, int, int, float, float]
LOSS = [(step, 1 / step, 100.0 + step) for step in range(1, 40_001)]
SPECIAL = [
    (1, math.nan, 1.0),
    (2, math.inf, 2.0),
    (4, -0.0, 4.0),
    (5, 5e-324, 5.5),
    (2**60 + 1, -math.inf, 6.0),
]


def from_csv(content: bytes) -> Iterator[Row]:
    for row in csv.DictReader(io.StringIO(content.decode())):
        texts = row["run"], row["series"], row["source"]
        yield *texts, int(row["attempt"]), int(row["step"]), float(row["value"]), float(row["wall_time"])


def from_parquet(content: bytes) -> Iterator[Row]:
    for row in pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist():
        yield tuple(row[name] for name in ("run", "series", "source", "attempt", "step", "value", "wall_time"))


def from_json(content: bytes) -> Iterator[Row]:
    for series in json.loads(content):
        for step, value, wall in series["points"]:
            yield (
                series["run"],
                series["series"],
                series["source"],
                series["attempt"],
                step,
                float(value),
                wall,
            )


@pytest.mark.parametrize(
    ("write", "read"), [(csv_file, from_csv), (parquet_file, from_parquet), (json_file, from_json)]
)
def test_a_file_holds_every_point_of_every_run(
    cluster: Cluster, write: Callable[..., Iterator[bytes]], read: Callable[[bytes], Iterator[Row]]
) -> None:
    first, second = cluster.launch(name="=first", gpus_per_node=1), cluster.launch(gpus_per_node=1)
    fences = {assignment.run_id: assignment.fence for assignment in cluster.assignments()}
    cluster.points(fences[first], 0, 10, {"train/loss": LOSS, "odd": SPECIAL})
    cluster.points(fences[second], 0, 10, {"train/loss": LOSS[:3]})
    pieces = list(write(cluster.store, [second, first]))
    expected = [(second, "train/loss", "events", 1, *point) for point in LOSS[:3]]
    expected += [(first, "odd", "events", 1, *point) for point in SPECIAL]
    expected += [(first, "train/loss", "events", 1, *point) for point in LOSS]
    assert list(map(repr, read(b"".join(pieces)))) == list(map(repr, expected))
    assert max(map(len, pieces)) < 3_000_000


def test_no_cell_of_a_csv_file_is_a_formula(cluster: Cluster) -> None:
    run_id = cluster.launch(name="=1+1")
    cluster.points(cluster.assignments()[0].fence, 0, 10, {"@sum": [(1, -1.0, 2.0)]})
    _, row = csv.reader(io.StringIO(b"".join(csv_file(cluster.store, [run_id])).decode()))
    assert row == [run_id, "'=1+1", "'@sum", "events", "1", "1", "-1", "2"]


@pytest.mark.parametrize("write", [csv_file, parquet_file, json_file])
def test_a_run_without_points_is_an_empty_table(
    cluster: Cluster, write: Callable[[Store, list[str]], Iterator[bytes]]
) -> None:
    content = b"".join(write(cluster.store, [cluster.launch()]))
    if write is series_files.json_file:
        assert json.loads(content) == []
    elif write is series_files.csv_file:
        assert content.count(b"\n") == 1
    else:
        assert pyarrow.parquet.read_table(io.BytesIO(content)).num_rows == 0
