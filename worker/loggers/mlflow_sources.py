"""MLflow's file store and SQLite file as stores that grow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from worker.loggers import mlflow_end, mlflow_files, mlflow_rows
from worker.loggers.databases import reading
from worker.loggers.store_source import Logged
from worker.loggers.wandb_run import FoundPoint
from worker.loggers.wandb_source import size_of

TIMEOUT_S = 0.5
"""Waited for a script that is writing, which happens again and again."""
METRICS = """
SELECT rowid, run_uuid, key, value, timestamp, step, is_nan FROM metrics WHERE rowid > ? ORDER BY rowid LIMIT 4096
"""
EXPERIMENT = "SELECT experiments.name FROM runs JOIN experiments USING (experiment_id) WHERE run_uuid = ?"


class MetricFile:
    """The file of one metric of one run, which gets a line for each point."""

    logger = "mlflow"

    def __init__(self, path: str, run: Path, file: Path) -> None:
        """`path` is its name on the server, `run` the folder of the run."""
        self.path, self._run, self._file, self._position = path, run, file, 0
        self._name = str(file.relative_to(run / mlflow_files.METRICS))

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if there is none."""
        return size_of(self._file)

    def restart(self) -> None:
        """Yield the first line next."""
        self._position = 0

    def records(self) -> Iterator[Logged]:
        """Yield the complete lines behind those that were yielded before. Raises OSError."""
        with self._file.open("rb") as content:
            content.seek(self._position)
            for line in content:
                if not line.endswith(b"\n"):
                    return  # the rest of it has not been written yet
                self._position += len(line)
                point = mlflow_files.point(line.decode(errors="replace").rstrip("\n"))
                if point is not None:
                    yield Logged(self._position, self._run.name, [FoundPoint(self._name, *point)])

    def settings(self, run: str) -> dict[str, Any]:
        """Return the run's parameters, tags and experiment. Raises OSError."""
        params, tags = mlflow_files.texts(self._run / "params"), mlflow_files.texts(self._run / "tags")
        experiment = mlflow_files.read_meta(self._run.parent / mlflow_files.META).get("name", "")
        return mlflow_end.settings(params, tags, experiment)


class Database:
    """A SQLite file; offsets are the numbers of its rows, which grow with each point."""

    logger = "mlflow"

    def __init__(self, path: str, file: Path) -> None:
        """`path` is its name on the server."""
        self.path, self._file, self._row = path, file, 0

    @property
    def size_bytes(self) -> int:
        """Number of the last row; 0 if it cannot be read now."""
        try:
            with reading(self._file, TIMEOUT_S) as connection:
                return int(connection.execute("SELECT max(rowid) FROM metrics").fetchone()[0] or 0)
        except sqlite3.Error:
            return 0

    def restart(self) -> None:
        """Yield the first row next."""
        self._row = 0

    def records(self) -> Iterator[Logged]:
        """Yield the next rows behind those that were yielded before. Raises sqlite3.Error."""
        with reading(self._file, TIMEOUT_S) as connection:
            while rows := connection.execute(METRICS, (self._row,)).fetchall():
                for row in rows:
                    self._row = row["rowid"]
                    point = FoundPoint(row["key"], *mlflow_rows.point(row))
                    yield Logged(self._row, row["run_uuid"], [point])

    def settings(self, run: str) -> dict[str, Any]:
        """Return the run's parameters, tags and experiment. Raises sqlite3.Error."""
        with reading(self._file, TIMEOUT_S) as connection:
            params, tags = (
                mlflow_rows.texts(connection, "params", run),
                mlflow_rows.texts(connection, "tags", run),
            )
            experiment = connection.execute(EXPERIMENT, (run,)).fetchone()
        return mlflow_end.settings(params, tags, experiment["name"] if experiment else "")
