"""MLflow's stores: `mlruns` folders and SQLite files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cli.importers.mlflow_database import database_runs
from cli.importers.past_run import PastRun, PointsBySeries, digest_of_files
from worker.loggers.mlflow_end import END_OF_NUMBER, settings
from worker.loggers.mlflow_files import META, METRICS, files, point, read_meta, texts
from worker.node.run_files import walk_files


def past_runs(root: Path) -> Iterator[PastRun]:
    """Yield the runs of all stores at or below `root`, without deleted ones."""
    yield from database_runs(root)
    if root.is_dir():
        metas = walk_files(root, lambda name: name == META)
        for meta in sorted(Path(entry.path) for entry in metas):
            described = read_meta(meta)
            if "start_time" in described and described.get("lifecycle_stage", "active") == "active":
                yield _past_run(meta.parent, described)


def _past_run(folder: Path, described: Mapping[str, Any]) -> PastRun:
    params, tags = texts(folder / "params"), texts(folder / "tags")
    state, message = END_OF_NUMBER.get(described.get("status", 0), END_OF_NUMBER[1])
    experiment = read_meta(folder.parent / META).get("name", "")
    ended_at = described.get("end_time")
    return PastRun(
        name=described.get("run_name") or tags.get("mlflow.runName") or folder.name,
        source=folder,
        content=digest_of_files(files(folder / METRICS)),
        started_at=described["start_time"] / 1000,
        ended_at=None if ended_at is None else ended_at / 1000,
        points=partial(_points, folder / METRICS),
        state=state,
        message=message,
        settings=settings(params, tags, experiment),
    )


def _points(folder: Path) -> Iterator[PointsBySeries]:
    """Yield the points of each metric."""
    for file in files(folder):
        read = [point(line) for line in file.read_text().splitlines()]
        yield {str(file.relative_to(folder)): [each for each in read if each is not None]}
