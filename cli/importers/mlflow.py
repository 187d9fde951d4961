"""MLflow's stores: `mlruns` folders and SQLite files."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from cli.importers.databases import databases, rows_of, sentence
from cli.importers.past_run import LeftOut, PastRun, PointsBySeries, digest_of_files, moment, reason_of
from domain.messages import Point
from domain.text.formats import plural
from worker.loggers.databases import digest_of_rows, reading
from worker.loggers.mlflow import (
    END_OF_NUMBER,
    ENDS,
    META,
    METRICS_FOLDER,
    NO_END,
    TABLES,
    End,
    files,
    point_of_line,
    point_of_row,
    read_meta,
    run_settings,
    texts_of_folder,
    texts_of_table,
)


def past_runs(root: Path, left_out: LeftOut) -> Iterator[PastRun]:
    """Yield the runs of all stores at or below `root`, without deleted ones."""
    yield from database_runs(root, left_out)
    if root.is_dir():
        for meta in sorted(left_out.walk(root, lambda name: name == META)):
            described = _described(meta, left_out)
            is_run = "start_time" in described or any((meta.parent / part).is_dir() for part in PARTS)
            if is_run and described.get("lifecycle_stage", "active") == "active":
                yield from left_out.attempt(meta.parent, partial(_past_run, meta.parent, described, left_out))


PARTS = (METRICS_FOLDER, "params", "tags")
"""Folders of a run, which an experiment has not."""
UNKNOWN_END: End = ("stopped", "Imported from MLflow, whose meta.yaml does not say how the run ended.")


def _described(meta: Path, left_out: LeftOut) -> Mapping[str, Any]:
    """Return what a `meta.yaml` says, and note what of it cannot be read."""
    data = meta.read_bytes() if meta.is_file() else b""
    text = data.decode(errors="replace")
    if text.encode() != data:
        left_out.add(meta, "It is not UTF-8: what could not be read in it is shown as \N{REPLACEMENT CHARACTER}.")
    if text and not text.endswith("\n"):  # MLflow ends each line that it has written
        left_out.add(meta, "It is cut off: its last line does not count.")
        text = text[: text.rfind("\n") + 1]
    try:
        described = yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        left_out.add(meta, f"It cannot be read ({reason_of(error)}): name, times and end are unknown.")
        return {}
    if not isinstance(described, dict) or not described:
        left_out.add(meta, "It says nothing: name, times and end are unknown.")
        return {}
    return {str(name): value for name, value in described.items()}


def _past_run(folder: Path, described: Mapping[str, Any], left_out: LeftOut) -> PastRun:
    params, tags = texts_of_folder(folder / "params"), texts_of_folder(folder / "tags")
    state, message = _end_of(described)
    experiment = read_meta(folder.parent / META).get("name") or ""
    name = described.get("run_name") or tags.get("mlflow.runName") or folder.name
    started_at = moment(described.get("start_time"), 1000)
    if started_at is None:
        left_out.add(folder / META, f"The run {name} has no start time: it is that of its first point.")
        started_at = _first_wall(folder)
    return PastRun(
        name=str(name),
        source=folder,
        content=digest_of_files(files(folder / METRICS_FOLDER)),
        started_at=started_at,
        ended_at=moment(described.get("end_time"), 1000),
        points=partial(_points, folder / METRICS_FOLDER, left_out),
        state=state,
        message=message,
        settings=run_settings(params, tags, str(experiment)),
    )


def _end_of(described: Mapping[str, Any]) -> End:
    status = described.get("status")
    if isinstance(status, str):
        return ENDS.get(status, END_OF_NUMBER[1])
    return END_OF_NUMBER.get(status, END_OF_NUMBER[1]) if isinstance(status, int) else UNKNOWN_END


def _first_wall(folder: Path) -> float:
    """Return the time of the first point, else that of the folder."""
    series = _points(folder / METRICS_FOLDER, LeftOut())
    walls = [wall for group in series for points in group.values() for _, _, wall in points]
    return min((wall for wall in walls if moment(wall)), default=folder.stat().st_mtime)


def _points(folder: Path, left_out: LeftOut) -> Iterator[PointsBySeries]:
    """Yield the points of each metric."""
    for file in files(folder):
        *lines, cut_off = file.read_bytes().decode(errors="replace").split("\n")
        read = [point_of_line(line.rstrip("\r")) for line in lines if line.strip()]
        points = [point for point in read if point is not None]
        if without := len(read) - len(points) + bool(cut_off):  # MLflow ends each line that it has written
            left_out.add(file, f"{plural(without, 'line')} of it cannot be read, or is cut off.")
        yield {str(file.relative_to(folder)): points}


# Runs in MLflow's SQLite files.

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
                    yield from left_out.attempt(file, partial(_past_run_of_row, connection, file, run, left_out))
        except sqlite3.Error as error:
            left_out.add(file, sentence(error))


def _past_run_of_row(connection: sqlite3.Connection, file: Path, run: sqlite3.Row, left_out: LeftOut) -> PastRun:
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
        points=partial(_points_of_row, file, run_id, left_out),
        state=state,
        message=message,
        settings=run_settings(params, tags, str(run["experiment"] or "")),
    )


def _points_of_row(file: Path, run_id: str, left_out: LeftOut) -> Iterator[PointsBySeries]:
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
