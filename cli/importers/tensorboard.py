"""TensorBoard's event files: each writer's folder is one run, with those that the writer made in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from cli.importers.past_run import (
    READ_BYTES,
    LeftOut,
    PastRun,
    PointsBySeries,
    WriterPoints,
    digest_of_files,
    is_moment,
    name_below,
)
from domain.text.formats import plural
from worker.node.run_files import is_event_file
from worker.streams.events import EventTail, series_name
from worker.streams.mirror import MirroredFile
from worker.streams.points import (
    are_of_add_hparams,
    first_events,
    hyperparameters,
    is_of_hparams,
    line_name,
    outer_writer,
    writer_and_tag,
)
from worker.streams.writers import Writers


def past_runs(root: Path, left_out: LeftOut) -> Iterator[PastRun]:
    """Yield a run for each writer below `root`."""
    files = [root] * is_event_file(root.name) if root.is_file() else left_out.walk(root, is_event_file)
    folders: dict[Path, _Folder] = {}
    for file in sorted(files, key=lambda path: (len(path.parts), path)):
        for events in left_out.attempt(file, partial(first_events, file)):
            folder = folders.setdefault(file.parent, _Folder([], []))
            folder.files.append(file)
            folder.events += events
    runs: dict[Path, list[Path]] = {}
    for path in folders:  # a run's folder before those in it
        outer = _outer(path, folders)
        runs.setdefault(outer if outer in runs else path, []).append(path)
    for path, own in runs.items():
        run = partial(
            _past_run, root if root.is_dir() else path, path, [folders[own_folder] for own_folder in own], left_out
        )
        yield from left_out.attempt(path, run)


MESSAGE = "Imported from event files, which do not say how the run ended."


@dataclass
class _Folder:
    """A folder with event files."""

    files: list[Path]
    events: list[Any]
    """The first ones of each file."""

    @property
    def tags(self) -> set[str]:
        """The tags of the first scalars."""
        values = (value for event in self.events for value in event.summary.value)
        return {value.tag for value in values if value.metadata.plugin_data.plugin_name != "hparams"}


def _outer(path: Path, folders: dict[Path, _Folder]) -> Path | None:
    """Return the folder of the writer that made this one for `add_scalars` or `add_hparams`; None if none did."""
    outer = outer_writer(str(path), {str(parent) for parent in path.parents if parent in folders})
    if outer is None:
        return None
    below, folder = os.path.relpath(path, outer), folders[path]
    is_line = len(folder.tags) == 1 and line_name(min(folder.tags), below)
    return Path(outer) if is_line or is_of_hparams(below) or are_of_add_hparams(folder.events) else None


def _past_run(root: Path, folder: Path, parts: Sequence[_Folder], left_out: LeftOut) -> PastRun:
    files = [file for part in parts for file in part.files]
    events = [event for part in parts for event in part.events]
    config = hyperparameters(events)
    moments = [event.wall_time for event in events if is_moment(event.wall_time) and event.wall_time > 0]
    return PastRun(
        name=name_below(root, folder),
        source=folder,
        content=digest_of_files(files),
        started_at=min(moments, default=files[0].stat().st_mtime),
        points=partial(_points, folder, files, left_out),
        message=MESSAGE,
        settings={"config": config} if config else {},
    )


def _points(folder: Path, files: Sequence[Path], left_out: LeftOut) -> Iterator[PointsBySeries]:
    """Yield the scalars of each file, named as those of a live run."""
    directories, writers = {str(file.parent) for file in files}, _writers(files)
    for number, file in enumerate(files):

        def named(tag: str, file: Path = file) -> str:
            prefix = writers.prefix(tag, str(file), has_own_folder=False)
            return prefix + _name(tag, str(file.parent), str(folder), directories)

        groups = left_out.guarded(file, _points_of_file(file, named, left_out))
        yield from (WriterPoints(number, group) for group in groups)


def _writers(files: Sequence[Path]) -> Writers:
    """Tell apart the writers of one folder that wrote at once; their processes have ended, so no rank is known."""
    last_wall = cache(_last_wall)
    writers = Writers(None, lambda pid: None, None, lambda file: last_wall(file.source))
    writers.look(MirroredFile(str(file), file, inode=0) for file in files)
    return writers


def _last_wall(file: Path) -> float:
    """Return the wall time of the last scalar of a file; 0 without any."""
    tail, last = EventTail(file), 0.0
    tail.final = True
    with suppress(OSError):
        while (records := tail.read(READ_BYTES)).end > records.start:
            last = max((last, *(points[-1][2] for points in records.series.values() if points)))
    return last


def _points_of_file(file: Path, named: Callable[[str], str], left_out: LeftOut) -> Iterator[PointsBySeries]:
    tail = EventTail(file)
    tail.final = True
    lost_bytes = 0
    while (records := tail.read(READ_BYTES)).end > records.start:
        lost_bytes += sum(gap.end - gap.start for gap in records.gaps)
        yield {named(tag): list(points) for tag, points in records.series.items()}
        if records.notice:
            left_out.add(file, f"{records.notice}.")
    if lost_bytes:
        left_out.add(file, f"{plural(lost_bytes, 'byte')} of it are damaged, or cut off: their values are missing.")


def _name(tag: str, directory: str, folder: str, directories: Collection[str]) -> str:
    if directory == folder:
        return tag
    writer, own = writer_and_tag(tag, directory, directories)
    return series_name(own, writer, folder)
