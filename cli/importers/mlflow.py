"""MLflow's stores: `mlruns` folders and SQLite files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from cli.importers.mlflow_database import database_runs
from cli.importers.mlflow_end import END_OF_NUMBER, settings
from cli.importers.past_run import PastRun, PointsBySeries, digest_of_files
from domain.messages import Point
from worker.node.run_files import walk_files


def past_runs(root: Path) -> Iterator[PastRun]:
    """Yield the runs of all stores at or below `root`, without deleted ones."""
    yield from database_runs(root)
    if root.is_dir():
        metas = walk_files(root, lambda name: name == "meta.yaml")
        for meta in sorted(Path(entry.path) for entry in metas):
            described = _described(meta)
            if "start_time" in described and described.get("lifecycle_stage", "active") == "active":
                yield _past_run(meta.parent, described)


def _past_run(folder: Path, described: Mapping[str, Any]) -> PastRun:
    params, tags = _texts(folder / "params"), _texts(folder / "tags")
    state, message = END_OF_NUMBER.get(described.get("status", 0), END_OF_NUMBER[1])
    experiment = _described(folder.parent / "meta.yaml").get("name", "")
    ended_at = described.get("end_time")
    return PastRun(
        name=described.get("run_name") or tags.get("mlflow.runName") or folder.name,
        source=folder,
        content=digest_of_files(_files(folder / "metrics")),
        started_at=described["start_time"] / 1000,
        ended_at=None if ended_at is None else ended_at / 1000,
        points=partial(_points, folder / "metrics"),
        state=state,
        message=message,
        settings=settings(params, tags, experiment),
    )


def _points(folder: Path) -> Iterator[PointsBySeries]:
    """Yield the points of each metric: a file, whose lines are time in ms, value and, in newer versions, step."""
    for file in _files(folder):
        points: list[Point] = []
        for line in file.read_text().splitlines():
            wall_ms, value, *step = line.split(" ")
            points.append((int(step[0]) if step else 0, float(value), int(wall_ms) / 1000))
        yield {str(file.relative_to(folder)): points}


def _described(meta: Path) -> Mapping[str, Any]:
    try:
        content = yaml.safe_load(meta.read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}


def _texts(folder: Path) -> dict[str, str]:
    return {str(file.relative_to(folder)): file.read_text(errors="replace") for file in _files(folder)}


def _files(folder: Path) -> list[Path]:
    return sorted(Path(entry.path) for entry in walk_files(folder, lambda name: True))
