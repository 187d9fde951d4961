"""Runs in MLflow's SQLite files."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cli.importers.past_run import PastRun, PointsBySeries
from domain.messages import Point
from worker.loggers.databases import databases, digest_of_rows, reading
from worker.loggers.mlflow_end import ENDS, NO_END, settings
from worker.loggers.mlflow_rows import TABLES, point, texts

RUNS = """
SELECT runs.*, experiments.name AS experiment FROM runs JOIN experiments USING (experiment_id)
WHERE runs.lifecycle_stage = 'active' ORDER BY runs.start_time, run_uuid
"""
POINTS = "SELECT key, value, timestamp, step, is_nan FROM metrics WHERE run_uuid = ? ORDER BY rowid"
ROWS = 1000
"""Rows whose points are yielded together."""


def database_runs(root: Path) -> Iterator[PastRun]:
    """Yield the runs in the databases at or below `root`."""
    for file in databases(root, TABLES):
        with reading(file) as connection:
            for run in connection.execute(RUNS).fetchall():
                yield _past_run(connection, file, run)


def _past_run(connection: sqlite3.Connection, file: Path, run: sqlite3.Row) -> PastRun:
    run_id = run["run_uuid"]
    params, tags = texts(connection, "params", run_id), texts(connection, "tags", run_id)
    state, message = ENDS.get(run["status"], NO_END)
    return PastRun(
        name=run["name"] or tags.get("mlflow.runName") or run_id,
        source=file,
        part=run_id,
        content=digest_of_rows(connection.execute(POINTS, (run_id,))),
        started_at=(run["start_time"] or 0) / 1000,
        ended_at=None if run["end_time"] is None else run["end_time"] / 1000,
        points=partial(_points, file, run_id),
        state=state,
        message=message,
        settings=settings(params, tags, run["experiment"]),
    )


def _points(file: Path, run_id: str) -> Iterator[PointsBySeries]:
    with reading(file) as connection:
        rows = connection.execute(POINTS, (run_id,))
        while page := rows.fetchmany(ROWS):
            batch = defaultdict[str, list[Point]](list)
            for row in page:
                batch[row["key"]].append(point(row))
            yield batch
