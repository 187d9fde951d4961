"""trackio's SQLite files, one for each project, in `~/.cache/huggingface/trackio` or TRACKIO_DIR."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from cli.importers.past_run import PastRun, PointsBySeries, numbers
from domain.messages import Point
from worker.loggers.databases import databases, digest_of_rows, reading

MESSAGE = "Imported from trackio, which does not record how a run ended."
ROWS = 1000
"""Rows whose points are yielded together."""


def past_runs(root: Path) -> Iterator[PastRun]:
    """Yield a run for each one in the databases at or below `root`."""
    for file in databases(root, frozenset({"metrics", "configs"})):
        with reading(file) as connection:
            columns = {row["name"] for row in connection.execute("PRAGMA table_info(metrics)")}
            key = "run_id" if "run_id" in columns else "run_name"  # older versions have names only
            runs = connection.execute(f"SELECT {key}, run_name FROM metrics GROUP BY {key} ORDER BY min(id)")
            for run in runs.fetchall():
                yield _past_run(connection, file, key, run)


def _past_run(connection: sqlite3.Connection, file: Path, key: str, run: sqlite3.Row) -> PastRun:
    rows = connection.execute(f"SELECT timestamp, step, metrics FROM metrics WHERE {key} = ?", (run[key],))
    content = digest_of_rows(rows)
    first = connection.execute(f"SELECT min(timestamp) FROM metrics WHERE {key} = ?", (run[key],)).fetchone()
    stored = connection.execute(f"SELECT config FROM configs WHERE {key} = ?", (run[key],)).fetchone()
    config = json.loads(stored["config"]) if stored else {}
    own = {name: value for name, value in config.items() if not name.startswith("_")}
    return PastRun(
        name=run["run_name"],
        source=file,
        part=str(run[key]),
        content=content,
        started_at=_wall(config.get("_Created") or first[0]),
        points=partial(_points, file, key, run[key]),
        message=MESSAGE,
        settings={"project": file.stem} | ({"config": own} if own else {}),
    )


def _points(file: Path, key: str, run: Any) -> Iterator[PointsBySeries]:
    with reading(file) as connection:
        query = f"SELECT timestamp, step, metrics FROM metrics WHERE {key} = ? ORDER BY id"
        rows = connection.execute(query, (run,))
        while page := rows.fetchmany(ROWS):
            batch = defaultdict[str, list[Point]](list)
            for row in page:
                wall = _wall(row["timestamp"])
                for name, value in numbers(json.loads(row["metrics"])):
                    batch[name].append((row["step"], value, wall))
            yield batch


def _wall(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
