"""W&B's `.wandb` files, of runs that were offline or online; read without the package and without a key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cli.importers.past_run import LeftOut, PastRun, PointsBySeries, digest_of_files, is_moment
from domain.messages import Point
from domain.text.formats import plural
from worker.loggers.wandb import WandbRows, WandbRun, records
from worker.streams.events import Gap


def past_runs(root: Path, left_out: LeftOut) -> Iterator[PastRun]:
    """Yield a run for each id in a folder of W&B's at or below `root`."""
    files = [root] if root.is_file() else left_out.walk(root, _is_wandb_file)
    run_parts = list[_Part]()
    for file in sorted(file for file in files if _is_wandb_file(file.name)):
        for part in left_out.attempt(file, partial(_part, file, left_out)):
            run_parts += [part] if part else []
    for parts in _by_run(run_parts):
        own = [part.file for part in sorted(parts, key=lambda part: part.started_at)]
        yield from left_out.attempt(own[0], partial(_past_run, own))


RECORDS = 1000
"""Records whose points are yielded together."""
_SUFFIX = ".wandb"


@dataclass(frozen=True)
class _Part:
    """One file: W&B makes one for each process that continues a run."""

    file: Path
    run_id: str
    project: str
    started_at: float


def _by_run(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Group the parts of one run; one whose beginning is lost may belong to any project."""
    projects = {(part.file.parent.parent, part.run_id): part.project for part in parts if part.project}
    runs: dict[tuple[Path, str, str], list[_Part]] = {}
    for part in parts:
        folder = part.file.parent.parent
        project = part.project or projects.get((folder, part.run_id), "")
        runs.setdefault((folder, part.run_id, project), []).append(part)
    return list(runs.values())


def _is_wandb_file(name: str) -> bool:
    return name.endswith(_SUFFIX)


def _part(file: Path, left_out: LeftOut) -> _Part | None:
    """Read what a file is part of, and note what of it is lost; None if it holds nothing."""
    run, gaps, is_empty = WandbRun(), list[Gap](), True
    for _, record in records(file, 0, gaps.append):
        run.read(record)
        is_empty = False
    if gaps:
        left_out.add(file, _lost(gaps))
    if is_empty:
        left_out.add(file, "It holds no record of W&B that can be read: nothing of it is imported.")
        return None
    started_at = run.started_at if is_moment(run.started_at) and run.started_at else file.stat().st_mtime
    run_id = run.run_id or file.name.removeprefix("run-").removesuffix(_SUFFIX)
    return _Part(file, run_id, run.project, started_at)


def _lost(gaps: Sequence[Gap]) -> str:
    size = plural(sum(gap.end - gap.start for gap in gaps), "byte")
    return f"{size} of it, from byte {gaps[0].start:,} on, are damaged or cut off: the records there are missing."


def _past_run(files: Sequence[Path]) -> PastRun:
    run = WandbRun()
    for file in files:
        run.begin_part()
        for _, record in records(file):
            run.read(record)
    state, message = run.end
    is_known = is_moment(run.started_at) and run.started_at
    return PastRun(
        name=run.name or files[0].stem,
        source=files[0],
        content=digest_of_files(files),
        started_at=run.started_at if is_known else files[0].stat().st_mtime,
        points=partial(_points, files),
        state=state,
        message=message,
        settings=run.settings,
    )


def _points(files: Sequence[Path]) -> Iterator[PointsBySeries]:
    """Yield the points of all parts: where two have a step of a series, the later one counts."""
    steps = [_steps(file) for file in files[1:]]
    for number, file in enumerate(files):
        later = steps[number:]
        for batch in _points_of(file):
            yield {
                name: [
                    point for point in points if not any(point[0] in later_steps.get(name, ()) for later_steps in later)
                ]
                for name, points in batch.items()
            }


def _steps(file: Path) -> dict[str, set[int]]:
    steps = defaultdict[str, set[int]](set)
    for batch in _points_of(file):
        for name, points in batch.items():
            steps[name].update(step for step, _, _ in points)
    return dict(steps)


def _points_of(file: Path) -> Iterator[dict[str, list[Point]]]:
    """Yield the points of the rows, `RECORDS` at a time."""
    rows, batch = WandbRows(file.stat().st_mtime), defaultdict[str, list[Point]](list)
    for number, (_, record) in enumerate(records(file)):
        for name, step, value, wall in rows.points(record):
            batch[name].append((step, value, wall))
        if number % RECORDS == RECORDS - 1:
            yield batch
            batch = defaultdict(list)
    yield batch
