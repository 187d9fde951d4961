"""trackio's SQLite files, one for each project, in `~/.cache/huggingface/trackio` or TRACKIO_DIR."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from cli.importers.databases import databases, rows_of, sentence
from cli.importers.past_run import LeftOut, PastRun, PointsBySeries, moment, numbers, reason_of
from domain.messages import Point
from domain.text.formats import plural
from domain.text.json_values import parse_json
from worker.loggers.databases import digest_of_rows, reading

MESSAGE = "Imported from trackio, which does not record how a run ended."
ROWS = 1000
"""Rows whose points are yielded together."""


def past_runs(root: Path, left_out: LeftOut) -> Iterator[PastRun]:
    """Yield a run for each one in the databases at or below `root`."""
    for file in databases(root, frozenset({"metrics", "configs"}), left_out):
        try:
            with reading(file) as connection:
                columns = {row["name"] for row in connection.execute("PRAGMA table_info(metrics)")}
                key = "run_id" if "run_id" in columns else "run_name"  # older versions have names only
                names = connection.execute(f"SELECT {key}, run_name FROM metrics ORDER BY id")  # nosec B608: one of two names of ours
                runs = {run[key]: run for run in rows_of(names, file, left_out)}
                for run in runs.values():
                    yield from left_out.attempt(file, partial(_past_run, connection, file, key, run, left_out))
        except sqlite3.Error as error:
            left_out.add(file, sentence(error))


def _past_run(connection: sqlite3.Connection, file: Path, key: str, run: sqlite3.Row, left_out: LeftOut) -> PastRun:
    rows = connection.execute(f"SELECT timestamp, step, metrics FROM metrics WHERE {key} = ?", (run[key],))  # nosec B608: one of two names of ours
    walls = list[float]()
    content = digest_of_rows(_noting_times(rows_of(rows, file, left_out), walls))
    config = _config(connection, file, key, run, left_out)
    own = {name: value for name, value in config.items() if not name.startswith("_")}
    return PastRun(
        name=str(run["run_name"]),
        source=file,
        part=str(run[key]),
        content=content,
        started_at=moment(config.get("_Created")) or min(walls, default=file.stat().st_mtime),
        points=partial(_points, file, key, run[key], left_out),
        message=MESSAGE,
        settings={"project": file.stem} | ({"config": own} if own else {}),
    )


def _noting_times(rows: Iterator[sqlite3.Row], walls: list[float]) -> Iterator[sqlite3.Row]:
    for row in rows:
        if (wall := moment(row["timestamp"])) is not None:
            walls.append(wall)
        yield row


def _config(
    connection: sqlite3.Connection, file: Path, key: str, run: sqlite3.Row, left_out: LeftOut
) -> dict[str, Any]:
    try:
        row = connection.execute(f"SELECT config FROM configs WHERE {key} = ?", (run[key],)).fetchone()  # nosec B608: one of two names of ours
        config = parse_json(row["config"]) if row else {}
    except (sqlite3.Error, ValueError, TypeError) as error:
        left_out.add(file, f"The configuration of the run {run['run_name']} cannot be read ({reason_of(error)}).")
        return {}
    return config if isinstance(config, dict) else {}


def _points(file: Path, key: str, run: Any, left_out: LeftOut) -> Iterator[PointsBySeries]:
    bad_rows, wall = 0, file.stat().st_mtime
    with reading(file) as connection:
        query = f"SELECT timestamp, step, metrics FROM metrics WHERE {key} = ? ORDER BY id"  # nosec B608: one of two names of ours
        rows = rows_of(connection.execute(query, (run,)), file, left_out)
        while page := list(islice(rows, ROWS)):
            batch = defaultdict[str, list[Point]](list)
            for row in page:
                wall = moment(row["timestamp"]) or wall  # one that is no time: that of the row before
                try:
                    for name, value in numbers(parse_json(row["metrics"])):
                        batch[name].append((int(row["step"]), value, wall))
                except (ValueError, TypeError, AttributeError, OverflowError):
                    bad_rows += 1
            yield batch
    if bad_rows:
        left_out.add(file, f"{plural(bad_rows, 'row')} of the run {run} cannot be read.")
