"""All points of runs as one CSV, Parquet or JSON file, made while it is sent: memory does not grow with the runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dashboard.exports.pipe import Pipe
from db.engine import Store
from db.metrics import points
from db.metrics.columns import unpacked
from db.metrics.curves import to_json_points
from db.metrics.points import StoredSeries, counting_pages, stored_series
from db.people.users import has_several
from domain.text.tables import without_formula

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP_POINTS = 64 * 1024


def csv_file(store: Store, run_ids: Sequence[str]) -> Iterator[bytes]:
    """Yield a CSV file with a head and a line for each point; NaN and infinities are nan, inf and -inf."""
    import pyarrow.csv

    pipe, schema = Pipe(), _schema(store)
    with pyarrow.csv.CSVWriter(pipe, schema) as writer:
        for table in _tables(store, run_ids, schema, is_csv=True):
            writer.write_table(table)
            yield pipe.take()
    yield pipe.take()


def parquet_file(store: Store, run_ids: Sequence[str]) -> Iterator[bytes]:
    """Yield a Parquet file with a row for each point, in groups of `ROW_GROUP_POINTS` rows."""
    import pyarrow.parquet

    pipe, schema = Pipe(), _schema(store)
    with pyarrow.parquet.ParquetWriter(pipe, schema, compression="zstd") as writer:
        for table in _row_groups(_tables(store, run_ids, schema)):
            writer.write_table(table)
            yield pipe.take()
    yield pipe.take()


def json_file(store: Store, run_ids: Sequence[str]) -> Iterator[bytes]:
    """Yield a JSON list of series, each with its points as [step, value, wall time], written as by the API."""
    separator = "["
    for series in stored_series(store, run_ids):
        head = {"run": series.run_id, "run_name": series.run_name, "by": series.by, "attempt": series.attempt,
                "series": series.name, "source": series.source}  # fmt: skip
        yield f'{separator}{json.dumps(head)[:-1]}, "points": ['.encode()
        comma = ""
        for blobs in counting_pages(store, series):
            text = json.dumps(to_json_points(points.unpack(*blobs)))
            yield f"{comma}{text[1:-1]}".encode()
            comma = ", "
        yield b"]}"
        separator = ",\n"
    yield b"]\n" if separator != "[" else b"[]\n"


def _schema(store: Store) -> pyarrow.Schema:
    """The columns; the last one names each run's person, where several people share the store."""
    import pyarrow as pa

    text = ("run", "run_name", "series", "source")
    columns = [*((name, pa.string()) for name in text), ("attempt", pa.int32()), ("step", pa.int64())]
    people = [("by", pa.string())] if has_several(store) else []
    return pa.schema([*columns, ("value", pa.float64()), ("wall_time", pa.float64()), *people])


def _tables(
    store: Store, run_ids: Sequence[str], schema: pyarrow.Schema, is_csv: bool = False
) -> Iterator[pyarrow.Table]:
    for series in stored_series(store, run_ids):
        for blobs in counting_pages(store, series):
            yield _table(series, blobs, schema, is_csv)


def _table(series: StoredSeries, blobs: Sequence[bytes], schema: pyarrow.Schema, is_csv: bool) -> pyarrow.Table:
    import pyarrow as pa

    texts = [series.run_id, series.run_name, series.name, series.source]
    _, values, walls = unpacked(blobs)
    steps = np.concatenate([np.frombuffer(blob, "<i8", len(blob) // 24) for blob in blobs])
    labels = [pa.repeat(without_formula(text) if is_csv else text, len(steps)) for text in texts]
    attempts = pa.repeat(pa.scalar(series.attempt, pa.int32()), len(steps))
    numbers = [pa.array(column) for column in (steps, values, walls)]
    people = [pa.repeat(pa.scalar(series.by, pa.string()), len(steps))] if "by" in schema.names else []
    return pa.Table.from_arrays([*labels, attempts, *numbers, *people], schema=schema)


def _row_groups(tables: Iterator[pyarrow.Table]) -> Iterator[pyarrow.Table]:
    """Join tables to groups of about `ROW_GROUP_POINTS` rows, because many series are short."""
    import pyarrow as pa

    group: list[pyarrow.Table] = []
    for table in itertools.chain(tables, [None]):
        if table is not None:
            group.append(table)
        if group and (table is None or sum(map(len, group)) >= ROW_GROUP_POINTS):
            yield pa.concat_tables(group).combine_chunks()
            group = []
