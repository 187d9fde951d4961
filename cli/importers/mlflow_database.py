"""Runs in MLflow's SQLite files."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from cli.importers.databases import databases, rows_of, sentence
from cli.importers.past_run import LeftOut, PastRun, PointsBySeries, moment
from domain.messages import Point
from domain.text.formats import plural
from worker.loggers.databases import digest_of_rows, reading
from worker.loggers.mlflow import ENDS, NO_END, TABLES, point_of_row, run_settings, texts_of_table

RUNS = """
SELECT runs.*, experiments.name AS experiment FROM runs JOIN experiments USING (experiment_id)
WHERE runs.lifecycle_stage = 'active' ORDER BY runs.start_time, run_uuid
"""
POINTS = "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY rowid"
ROWS = 1000
"""Rows whose points are yielded together."""


def database_runs(root: Path, left_out: LeftOut) -> Iterator[PastRun]:
    """Yield the runs in the databases at or below `root`."""
    for file in databases(root, TABLES, left_out):
        try:
            with reading(file) as connection:
                runs = list(rows_of(connection.execute(RUNS), file, left_out))
                for run in runs:
                    yield from left_out.attempt(file, partial(_past_run, connection, file, run, left_out))
        except sqlite3.Error as error:
            left_out.add(file, sentence(error))


def _past_run(connection: sqlite3.Connection, file: Path, run: sqlite3.Row, left_out: LeftOut) -> PastRun:
    run_id = run["run_uuid"]
    params, tags = texts_of_table(connection, "params", run_id), texts_of_table(connection, "tags", run_id)
    state, message = ENDS.get(run["status"], NO_END)
    name = run["name"] or tags.get("mlflow.runName") or run_id
    started_at = moment(run["start_time"], 1000)
    if started_at is None:
        left_out.add(file, f"The run {name} has no start time: it is that of the file.")
        started_at = file.stat().st_mtime
    return PastRun(
        name=str(name),
        source=file,
        part=str(run_id),
        content=digest_of_rows(rows_of(connection.execute(POINTS, (run_id,)), file, left_out)),
        started_at=started_at,
        ended_at=moment(run["end_time"], 1000),
        points=partial(_points, file, run_id, left_out),
        state=state,
        message=message,
        settings=run_settings(params, tags, str(run["experiment"] or "")),
    )


def _points(file: Path, run_id: str, left_out: LeftOut) -> Iterator[PointsBySeries]:
    bad_rows = 0
    with reading(file) as connection:
        rows = rows_of(connection.execute(POINTS, (run_id,)), file, left_out)
        while page := list(islice(rows, ROWS)):
            batch = defaultdict[str, list[Point]](list)
            for row in page:
                try:
                    batch[str(row["key"])].append(point_of_row(row))
                except (ValueError, TypeError, OverflowError):
                    bad_rows += 1
            yield batch
    if bad_rows:
        left_out.add(file, f"{plural(bad_rows, 'row')} of the run {run_id} hold no point.")
