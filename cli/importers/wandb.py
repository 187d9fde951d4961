"""W&B's `.wandb` files, of runs that were offline or online; read without the package and without a key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cli.importers.past_run import PastRun, PointsBySeries, digest_of_files
from domain.messages import Point
from worker.loggers.wandb_records import records
from worker.loggers.wandb_run import WandbRows, WandbRun
from worker.node.run_files import walk_files

RECORDS = 1000
"""Records whose points are yielded together."""


def past_runs(root: Path) -> Iterator[PastRun]:
    """Yield a run for each `.wandb` file below `root`."""
    entries = [] if root.is_file() else walk_files(root, _is_wandb_file)
    for file in sorted([root] if root.is_file() else [Path(entry.path) for entry in entries]):
        if _is_wandb_file(file.name):
            yield _past_run(file)


def _is_wandb_file(name: str) -> bool:
    return name.endswith(".wandb")


def _past_run(file: Path) -> PastRun:
    run = WandbRun()
    for _, record in records(file):
        run.read(record)
    state, message = run.end
    return PastRun(
        name=run.name or file.stem,
        source=file,
        content=digest_of_files([file]),
        started_at=run.started_at or file.stat().st_mtime,
        points=partial(_points, file),
        state=state,
        message=message,
        settings=run.settings,
    )


def _points(file: Path) -> Iterator[PointsBySeries]:
    """Yield the points of the rows, `RECORDS` at a time."""
    rows, batch = WandbRows(file.stat().st_mtime), defaultdict[str, list[Point]](list)
    for number, (_, record) in enumerate(records(file)):
        for name, step, value, wall in rows.points(record):
            batch[name].append((step, value, wall))
        if number % RECORDS == RECORDS - 1:
            yield batch
            batch = defaultdict(list)
    yield batch
