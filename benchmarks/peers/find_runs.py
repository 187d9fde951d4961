"""Lists and searches many runs, as the named peer's page does.

    python find_runs.py mlflow|trackio FOLDER

A round of at least 10 fills the store with that many runs of six series; 0 lists the newest hundred, 1 those of a small
loss. A round is in processor seconds. What the page gets over HTTP is read without HTTP.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rounds import serve

TAGS = ("train/loss", "val/loss", "train/samples_per_s", "train/lr", "train/epoch", "acc")
STEPS = 120
WINDOW = 100
MOST_LOSS = 0.5
BEGAN_MS = 1_700_000_000_000


class Mlflow:
    """Its search reads the last value of a series alone, so that there is no other."""

    def __init__(self, folder: Path) -> None:
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        self._path = folder / "mlflow.db"
        self._store = SqlAlchemyStore(f"sqlite:///{self._path}", str(folder))

    def fill(self, runs: int) -> None:
        luck = random.Random(1)
        names = [f"{number:032x}" for number in range(runs)]
        rows = [(name, f"run {n}", "FINISHED", BEGAN_MS + n, BEGAN_MS + n + 1) for n, name in enumerate(names)]
        last = [(tag, luck.uniform(0.1, 2), BEGAN_MS, STEPS, name) for name in names for tag in TAGS]
        params = [("lr", luck.choice(["0.0001", "0.001"]), name) for name in names]
        with sqlite3.connect(self._path) as connection:
            connection.executemany(
                "INSERT INTO runs (run_uuid, name, status, start_time, end_time, lifecycle_stage, experiment_id, "
                "user_id, artifact_uri) VALUES (?, ?, ?, ?, ?, 'active', 0, 'user', '')", rows,
            )  # fmt: skip
            connection.executemany(
                "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, 0, ?)",
                last,
            )
            connection.executemany("INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)", params)

    def list(self) -> None:
        self._found("")

    def search(self) -> None:
        self._found(f"metrics.`val/loss` < {MOST_LOSS}")

    def _found(self, query: str) -> None:
        from mlflow.entities import ViewType

        found = self._store.search_runs(["0"], query, ViewType.ACTIVE_ONLY, WINDOW)
        assert json.dumps([run.to_dictionary() for run in found])


class Trackio:
    """Its page gets the names and settings of all runs and searches them itself; it cannot search by a value."""

    def __init__(self, folder: Path) -> None:
        os.environ["TRACKIO_DIR"] = str(folder)
        from trackio.sqlite_storage import SQLiteStorage

        self._store = SQLiteStorage

    def fill(self, runs: int) -> None:
        rows = self._rows(runs)
        with sqlite3.connect(self._store.init_db("benchmark")) as connection:
            connection.executemany(
                "INSERT INTO metrics (timestamp, run_id, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)",
                rows,
            )
            connection.executemany(
                "INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?)",
                [(f"{n}", f"run {n}", json.dumps({"lr": 0.001}), _at(n)) for n in range(runs)],
            )

    def _rows(self, runs: int) -> Iterator[tuple[str, str, str, int, bytes]]:
        luck = random.Random(1)
        for number in range(runs):
            values = json.dumps({tag: luck.uniform(0.1, 2) for tag in TAGS}).encode()
            for step in range(STEPS):
                yield _at(number), f"{number}", f"run {number}", step, values

    def list(self) -> None:
        records = self._store.get_run_records("benchmark")
        assert json.dumps([records, self._store.get_all_run_configs("benchmark")])


def _at(number: int) -> str:
    return f"2026-01-{1 + number % 28:02}T00:00:00+00:00"


if __name__ == "__main__":
    name, folder = sys.argv[1:]
    runs = {"mlflow": Mlflow, "trackio": Trackio}[name](Path(folder))

    def measured(size: int) -> float:
        began = time.process_time()
        if size >= 10:
            runs.fill(size)
        elif size:
            runs.search()
        else:
            runs.list()
        return time.process_time() - began

    serve(measured)
