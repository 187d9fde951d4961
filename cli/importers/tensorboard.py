"""TensorBoard's event files: each folder that holds some is one run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from cli.importers.past_run import READ_BYTES, PastRun, PointsBySeries, digest_of_files, name_below
from worker.node.run_files import is_event_file, walk_files
from worker.streams.events import HEADER, HPARAMS_FOLDER, EventTail, has_header, series_name

MESSAGE = "Imported from event files, which do not say how the run ended."


def past_runs(root: Path) -> Iterator[PastRun]:
    """Yield a run for each folder below `root` with event files."""
    files = (
        [root] * is_event_file(root.name)
        if root.is_file()
        else [Path(entry.path) for entry in walk_files(root, is_event_file)]
    )
    by_folder: dict[Path, list[Path]] = {}
    for file in sorted(files, key=lambda path: (len(path.parts), path)):  # a run's folder before those in it
        folder, outer = file.parent, file.parent.parent
        is_inner = HPARAMS_FOLDER.fullmatch(folder.name) and outer in by_folder
        by_folder.setdefault(outer if is_inner else folder, []).append(file)
    for folder, own in by_folder.items():
        yield _past_run(root if root.is_dir() else folder, folder, own)


def _past_run(root: Path, folder: Path, files: Sequence[Path]) -> PastRun:
    events = [event for file in files for event in _first_events(file)]
    hyperparameters = {name: value for event in events for name, value in _hyperparameters(event)}
    return PastRun(
        name=name_below(root, folder),
        source=folder,
        content=digest_of_files(files),
        started_at=min((event.wall_time for event in events if event.wall_time > 0), default=time.time()),
        points=partial(_points, folder, files),
        message=MESSAGE,
        settings={"config": hyperparameters} if hyperparameters else {},
    )


def _points(folder: Path, files: Sequence[Path]) -> Iterator[PointsBySeries]:
    """Yield the scalars of each file, named as those of a live run."""
    for file in files:
        tail = EventTail(file)
        tail.final = True
        while (records := tail.read(READ_BYTES)).end > records.start:
            directory = str(file.parent)
            yield {series_name(tag, directory, str(folder)): list(pts) for tag, pts in records.series.items()}


def _first_events(file: Path) -> Iterator[Any]:
    """Yield the events at the beginning of a file, where hyperparameters are."""
    with file.open("rb") as content:
        data, position = content.read(READ_BYTES), 0
    while position + HEADER.size <= len(data) and has_header(data, position):
        begin = position + HEADER.size
        position = begin + HEADER.unpack_from(data, position)[0] + 4
        if position <= len(data):
            try:
                yield Event.FromString(data[begin : position - 4])
            except DecodeError:
                return


def _hyperparameters(event: Any) -> Iterator[tuple[str, Any]]:
    for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name == "hparams":
            plugin = HParamsPluginData.FromString(value.metadata.plugin_data.content)
            for name, hparam in plugin.session_start_info.hparams.items():
                yield name, getattr(hparam, hparam.WhichOneof("kind") or "string_value")
