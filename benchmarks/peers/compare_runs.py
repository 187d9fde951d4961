"""Reads one series of many runs, thinned for the screen, as the named peer's page does to compare them.

    python compare_runs.py mlflow|trackio FOLDER RUNS

A round of at least 1,000 fills each run with that many points; others read them all, in processor seconds. What the
page gets over HTTP is read without HTTP.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from pathlib import Path

from rounds import serve

MOST_POINTS = 400
TAG = "train/loss"


class Mlflow:
    def __init__(self, folder: Path, runs: int) -> None:
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        self._path = folder / "mlflow.db"
        self._store = SqlAlchemyStore(f"sqlite:///{self._path}", str(folder))
        made = (self._store.create_run("0", "user", 0, [], f"run {number}") for number in range(runs))
        self._runs = [run.info.run_id for run in made]

    def fill(self, points: int) -> None:
        insert = "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, 0)"
        with sqlite3.connect(self._path) as connection:
            for run in self._runs:
                rows = ((TAG, 1 / (step + 1), 1_700_000_000_000 + step, run, step) for step in range(points))
                connection.executemany(insert, rows)

    def read(self, number: int) -> None:
        found = self._store.get_metric_history_bulk_interval(self._runs, TAG, MOST_POINTS, None, None)
        assert json.dumps([dict(point) for point in found])


class Trackio:
    def __init__(self, folder: Path, runs: int) -> None:
        os.environ["TRACKIO_DIR"] = str(folder)
        from trackio.sqlite_storage import SQLiteStorage

        self._store, self._runs = SQLiteStorage, [f"run {number}" for number in range(runs)]

    def fill(self, points: int) -> None:
        for run in self._runs:
            values = [{TAG: 1 / (step + 1)} for step in range(points)]
            self._store.bulk_log("benchmark", run, values, [*range(points)])

    def read(self, number: int) -> None:
        runs = [{"run": run, "run_id": run} for run in self._runs]
        # It keeps what it read: another number of points each time makes it read again.
        found = self._store.get_logs_batch("benchmark", runs, MOST_POINTS + number, scalar_only=True)
        assert len(found[0]["logs"]) > 1 and json.dumps(found)


if __name__ == "__main__":
    name, folder, count = sys.argv[1:]
    runs = {"mlflow": Mlflow, "trackio": Trackio}[name](Path(folder), int(count))

    def measured(size: int) -> float:
        began = time.process_time()
        if size >= 1000:
            runs.fill(size)
        else:
            runs.read(size)
        return time.process_time() - began

    serve(measured)
