"""MLflow's file store and SQLite file: their rows and ends, and both as stores that grow."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from domain.messages import Point
from worker.loggers.databases import reading
from worker.loggers.store_source import Logged, LoggedPoint, size_of
from worker.node.regular_files import bytes_of, open_regular
from worker.node.run_files import walk_files

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
        self._name = str(file.relative_to(run / METRICS_FOLDER))

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if there is none."""
        return size_of(self._file)

    def restart(self) -> None:
        """Yield the first line next."""
        self._position = 0

    def records(self) -> Iterator[Logged]:
        """Yield the complete lines behind those that were yielded before. Raises OSError."""
        with open_regular(self._file) as content:
            content.seek(self._position)
            for line in content:
                if not line.endswith(b"\n"):
                    return  # the rest of it has not been written yet
                self._position += len(line)
                point = point_of_line(line.decode(errors="replace").rstrip("\n"))
                if point is not None:
                    yield Logged(self._position, self._run.name, [LoggedPoint(self._name, *point)])

    def settings(self, run: str) -> dict[str, Any]:
        """Return the run's parameters, tags and experiment. Raises OSError."""
        params, tags = texts_of_folder(self._run / "params"), texts_of_folder(self._run / "tags")
        experiment = read_meta(self._run.parent / META).get("name", "")
        return run_settings(params, tags, experiment)


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
                    point = LoggedPoint(row["key"], *point_of_row(row))
                    yield Logged(self._row, row["run_uuid"], [point])

    def settings(self, run: str) -> dict[str, Any]:
        """Return the run's parameters, tags and experiment. Raises sqlite3.Error."""
        with reading(self._file, TIMEOUT_S) as connection:
            params, tags = (
                texts_of_table(connection, "params", run),
                texts_of_table(connection, "tags", run),
            )
            experiment = connection.execute(EXPERIMENT, (run,)).fetchone()
        return run_settings(params, tags, experiment["name"] if experiment else "")


# The ends and settings of MLflow's runs, as both of its stores have them.

End = tuple[Literal["succeeded", "failed", "stopped"], str | None]
NO_END: End = ("failed", "MLflow has no end of this run: it was killed, or it still runs.")
ENDS: Mapping[str, End] = {
    "FINISHED": ("succeeded", None),
    "FAILED": ("failed", "MLflow recorded that it failed."),
    "KILLED": ("stopped", "MLflow recorded that it was killed."),
}
"""By the status in the database; others have not ended."""
END_OF_NUMBER: Mapping[int, End] = {1: NO_END, 3: ENDS["FINISHED"], 4: ENDS["FAILED"], 5: ENDS["KILLED"]}
"""By the status in files."""


def run_settings(params: Mapping[str, str], tags: Mapping[str, str], experiment: str) -> dict[str, Any]:
    """Return what the Spec tab shows: parameters, and the tags that MLflow did not set itself."""
    own = [f"{name}={value}" for name, value in tags.items() if not name.startswith("mlflow.")]
    shown = {"config": dict(params), "tags": own, "project": experiment}
    return {name: value for name, value in shown.items() if value}


# A run in MLflow's file store: a folder of `metrics`, `params` and `tags`, one file each.

META = "meta.yaml"
"""In the folder of a run, and of an experiment."""
METRICS_FOLDER = "metrics"


def point_of_line(line: str) -> Point | None:
    """Return the point of a metric's line: time in ms, value and, in newer versions, step; None if it is none."""
    try:
        wall_ms, value, *step = line.split(" ")
        return int(step[0]) if step else 0, float(value), int(wall_ms) / 1000
    except (ValueError, OverflowError):
        return None


def read_meta(meta: Path) -> Mapping[str, Any]:
    """Return what a `meta.yaml` says; nothing if it cannot be read."""
    try:
        content = yaml.safe_load(bytes_of(meta))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def texts_of_folder(folder: Path) -> dict[str, str]:
    """Return the content of each file by its name. Raises OSError."""
    return {str(file.relative_to(folder)): bytes_of(file).decode(errors="replace") for file in files(folder)}


def files(folder: Path) -> list[Path]:
    """Return all files below a folder; the name of a metric may contain slashes."""
    return sorted(Path(entry.path) for entry in walk_files(folder, lambda name: True))


# Rows of MLflow's SQLite files.

TABLES = frozenset({"runs", "metrics", "params", "tags", "experiments"})


def point_of_row(row: sqlite3.Row) -> Point:
    """Return the point of a row of `metrics`."""
    value = math.nan if row["is_nan"] else float(row["value"])
    return int(row["step"]), value, row["timestamp"] / 1000


def texts_of_table(connection: sqlite3.Connection, table: Literal["params", "tags"], run_id: str) -> dict[str, str]:
    """Return the parameters or tags of a run by their names."""
    query = f"SELECT key, value FROM {table} WHERE run_uuid = ?"  # nosec B608: one of two names of ours
    return {row["key"]: row["value"] for row in connection.execute(query, (run_id,))}
