"""Event files, with what their writers say of hyperparameters, as point sources."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import Point, PointBatch
from worker.node.regular_files import bytes_of, open_regular
from worker.node.run_files import LOGGERS
from worker.node.state_files import write_whole
from worker.streams.events import (
    HEADER,
    HPARAMS_FOLDER,
    Event,
    EventTail,
    Hyperparameters,
    has_header,
    main_writer_dir,
    series_name,
)
from worker.streams.json_lines import JsonLines, JsonPoints, Record
from worker.streams.mirror import MirroredFile
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import OffsetOf
from worker.streams.writers import Writers

log = logging.getLogger(__name__)
Series = dict[str, list[Point]]


class EventFileSource:
    """One generation of one event file."""

    def __init__(
        self, file: MirroredFile, offset: int, name: Callable[[Series, str], Series], omissions: Omissions
    ) -> None:
        """`name` gives the series of a file, by tag, their names."""
        self.path, self.generation = file.path, file.generation
        self._file, self._name, self._omissions = file, name, omissions
        self._tail = EventTail(file.source, offset)
        self._read_up_to = -1
        """Size of the file when all its complete records had been sent."""

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if it is missing or was replaced."""
        return size_if_same(self._file) or 0

    def is_done(self, final: bool) -> bool:
        """Whether nothing is to be read until the mirror notices that the file has grown; `final`: its writer ended."""
        return self._read_up_to >= self._file.size_bytes and self._tail.final >= final

    def finish(self) -> None:
        """Read an incomplete end as it is: the writer has ended."""
        if not self._tail.final:
            self._tail.final, self._read_up_to = True, -1

    def read(self, max_bytes: int) -> PointBatch | None:
        """Read the next complete records, about `max_bytes`; None if there are none."""
        size = size_if_same(self._file)
        if size is None or size <= self._read_up_to:
            return None
        if self._tail.final and self._tail.offset >= self._file.size_bytes:
            self._read_up_to = size  # a stranger goes on writing to it
            return None
        records = self._tail.read(max_bytes)
        if records.notice:
            log.warning("%s", records.notice)
        self._omissions.record_gaps(self.path, self.generation, records.gaps)
        if records.end == records.start:
            self._read_up_to = -1 if records.awaits_data else size
            return None
        series = self._name(records.series, self.path)
        return PointBatch(
            path=self.path, generation=self.generation, start=records.start, end=records.end, series=series
        )

    def rewind(self, offset: int) -> None:
        """Continue reading at `offset`."""
        self._tail.offset = offset


MANY = 256
"""Of more event files, each is read again only once the mirror has noticed that it has grown."""


class EventFiles:
    """The point sources among the event files of a mirror."""

    def __init__(
        self,
        files: Callable[[], Sequence[MirroredFile]],
        offset_of: OffsetOf,
        main_writer_file: Path,
        omissions: Omissions,
        writers: Writers,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._files, self._offset_of, self._omissions = files, offset_of, omissions
        self._sources: dict[tuple[str, int], EventFileSource] = {}
        self._main_writer_file, self._writers = main_writer_file, writers
        self._main_dir: str | None = None
        self._known: tuple[int, set[str]] = (0, set())
        """The number of event files so far, and their directories."""
        self._hparams: dict[str, tuple[int, Mapping[str, Any]]] = {}
        """File -> its size when it was looked at, and the hyperparameters in it."""

    def sources(self, final: bool) -> Iterator[EventFileSource]:
        """Yield the source of each event file; `final`: the writers have ended. Raises what `offset_of` raises."""
        files = self._files()
        self._writers.look(files)
        leaves_out_read = final or len(files) > MANY
        for file in files:
            key = (file.path, file.generation)
            if leaves_out_read and (source := self._sources.get(key)) and source.is_done(final):
                continue
            if not size_if_same(file) or not (final or self._writers.is_settled(file.path, self._clock.wall())):
                continue
            if key not in self._sources:
                self._sources[key] = EventFileSource(file, self._offset_of(*key), self._named, self._omissions)
            if final:
                self._sources[key].finish()
            yield self._sources[key]

    def hyperparameters(self) -> dict[str, Any]:
        """Return those that `add_hparams` has written; those of further writers are named after them."""
        values: dict[str, Any] = {}
        for file in self._files():
            own = self._hparams_of(file)
            directory = _directory_of(file.path) if own else ""
            for name, value in own.items():
                writer = outer_writer(directory, self._directories()) or directory
                values[series_name(name, writer, self._main_writer_dir())] = value
        return values

    def _hparams_of(self, file: MirroredFile) -> Mapping[str, Any]:
        """Look at the beginning of a file again only if it has grown since."""
        size, cached = size_if_same(file) or 0, self._hparams.get(file.path)
        if cached is None or cached[0] < min(size, READ_BYTES):
            try:
                events = hparams_events(file.source)
            except OSError:
                events = []
            own = hyperparameters(events) if are_of_add_hparams(events) else {}
            cached = self._hparams[file.path] = (size, own)
        return cached[1]

    def _named(self, series: Series, path: str) -> Series:
        origin = self._writers.origin(path, {tag: points[0][0] for tag, points in series.items()})
        return {self._unique_name(tag, path, origin): points for tag, points in series.items()}

    def _unique_name(self, tag: str, path: str, origin: str) -> str:
        """Name a series so that no two writers share it, unless one goes on where the other ended."""
        folder, main = _directory_of(origin), self._main_writer_dir()
        is_made_by_main = folder.startswith(f"{main}/") and self._writers.has_rank_0s_beside(origin)
        has_own_folder = self._writers.has_own_folder(origin, folder != main and not is_made_by_main)
        prefix = self._writers.prefix(tag, path, has_own_folder=has_own_folder)
        return prefix + (self._name(tag, origin) if has_own_folder or is_made_by_main else tag)

    def _name(self, tag: str, path: str) -> str:
        """Name a series after the writer that the script made, not after the folders that one makes for itself."""
        directory = _directory_of(path)
        if directory == self._main_writer_dir():
            return tag
        writer, own = writer_and_tag(tag, directory, self._directories())
        return series_name(own, writer, self._main_writer_dir())

    def _directories(self) -> set[str]:
        """Return the directories that have event files."""
        files = self._files()
        if len(files) != self._known[0]:
            self._known = (len(files), {_directory_of(file.path) for file in files})
        return self._known[1]

    def _main_writer_dir(self) -> str:
        """Return the first writer's directory, which keeps plain names also after a restart of the worker."""
        if self._main_dir is None:
            try:
                self._main_dir = bytes_of(self._main_writer_file).decode()
            except OSError:
                self._writers.look(self._files())
                files = [file.path for file in self._files()]
                of_rank_0 = [path for path in files if self._writers.is_rank_0s(path)]
                directory = str(main_writer_dir(map(Path, of_rank_0 or files)) or "")
                if not of_rank_0:
                    return _below_working_directory(directory)
                self._main_dir = directory
                with suppress(OSError):  # a full disk: the next look gives the same answer
                    write_whole(self._main_writer_file, self._main_dir)
        return _below_working_directory(self._main_dir)


def size_if_same(file: MirroredFile) -> int | None:
    """Return the file's size now; None if it is missing, or was replaced and the mirror has not noticed yet."""
    try:
        status = file.source.lstat()
    except OSError:
        return None
    return status.st_size if status.st_ino == file.inode else None


def _directory_of(path: str) -> str:
    return _below_working_directory(str(PurePosixPath(path).parent))


def _below_working_directory(directory: str) -> str:
    return directory.partition("/")[2] if directory.startswith(("work/", "workdir/")) else directory


# The hyperparameters of `add_hparams`, which are at the beginning of an event file of their own.

READ_BYTES = 1024 * 1024
PLUGIN = b"hparams"
EXPERIMENT, SESSION = "_hparams_/experiment", "_hparams_/session_start_info"
"""Tags of what `add_hparams` writes into one file; Keras' callback writes the first one beside its runs."""


def first_events(file: Path) -> list[Any]:
    """Return the whole events at the beginning of a file. Raises OSError."""
    return list(_events(_beginning(file)))


def hparams_events(file: Path) -> list[Any]:
    """Return these events if some have hyperparameters, else none: most files are told apart without being decoded.

    Raises OSError."""
    data = _beginning(file)
    return list(_events(data)) if PLUGIN in data else []


def hyperparameters(events: list[Any]) -> dict[str, Any]:
    """Return the hyperparameters in some events: texts, numbers and truth values."""
    return {name: value for event in events for name, value in _of_event(event)}


def are_of_add_hparams(events: list[Any]) -> bool:
    """Whether `add_hparams` wrote these events."""
    return {EXPERIMENT, SESSION} <= {value.tag for event in events for value in event.summary.value}


def _beginning(file: Path) -> bytes:
    with open_regular(file) as content:
        return content.read(READ_BYTES)


def _events(data: bytes) -> Iterator[Any]:
    position = 0
    while position + HEADER.size <= len(data) and has_header(data, position):
        begin = position + HEADER.size
        position = begin + HEADER.unpack_from(data, position)[0] + 4
        if position <= len(data):
            try:
                yield Event.FromString(data[begin : position - 4])
            except DecodeError:
                return


def _of_event(event: Any) -> Iterator[tuple[str, Any]]:
    for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name == "hparams":
            try:
                plugin = Hyperparameters.FromString(value.metadata.plugin_data.content)
            except DecodeError:
                continue
            for hparam in plugin.session_start_info.hparams:
                for kind in ("number_value", "string_value", "bool_value"):
                    if hparam.value.HasField(kind):
                        yield hparam.key, _as_json(getattr(hparam.value, kind))


def _as_json(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


# Tell the folders that one `SummaryWriter` makes for `add_scalars` and `add_hparams` from those of other writers.

HPARAMS = "hparams"
"""Stands for the folder of `add_hparams`, whose own name is the time of the call."""
_REPLACED = re.compile(r"[^-\w.]")
"""Characters of a tag that become `_`: the slash in a folder's name, others in tensorboardX's tags."""


def line_name(tag: str, folder: str) -> str | None:
    """Return `TAG/LINE` for a line of `add_scalars`, whose folder below its writer's is `TAG_LINE`; else None."""
    if not tag:
        return None
    flat = _REPLACED.sub("_", folder)
    begins = flat.startswith(f"{_REPLACED.sub('_', tag)}_") and len(folder) > len(tag) + 1
    return f"{tag}/{folder[len(tag) + 1 :]}" if begins else None


def is_of_hparams(folder: str) -> bool:
    """Whether a folder below a writer's is named by the time, as `add_hparams` names it."""
    return HPARAMS_FOLDER.fullmatch(folder) is not None


def outer_writer(directory: str, directories: Collection[str]) -> str | None:
    """Return the nearest directory around this one that has event files too; None if there is none."""
    parents = (str(parent) for parent in PurePosixPath(directory).parents)
    return next((parent for parent in parents if parent in directories), None)


def writer_and_tag(tag: str, directory: str, directories: Collection[str]) -> tuple[str, str]:
    """Return the directory of the writer that made this one, and the name that its series has there.

    For `add_hparams` it is the directory `hparams`; a directory that no other writer made stays as it is."""
    outer = outer_writer(directory, directories)
    if outer is None:
        return directory, tag
    folder = str(PurePosixPath(directory).relative_to(outer))
    if line := line_name(tag, folder):
        return outer, line
    return (f"{outer}/{HPARAMS}" if is_of_hparams(folder) else directory), tag


# Points of other loggers (W&B, MLflow, ...), which the probe writes in rank 0, as point sources.


class LoggerFiles:
    """The files of all processes on this node whose loggers are observed."""

    def __init__(self, attempt: Path, offset_of: OffsetOf) -> None:
        self._folder, self._offset_of = attempt / LOGGERS, offset_of
        self._sources: dict[str, JsonPoints] = {}

    def sources(self, final: bool) -> Iterator[JsonPoints]:
        """Yield the source of each file. Raises what `offset_of` raises."""
        for name in _names(self._folder):
            if name not in self._sources:
                path = f"{LOGGERS}/{name}"
                lines = JsonLines(self._folder / name, self._offset_of(path, 0))
                self._sources[name] = JsonPoints(path, lines, "events", points_of)
            yield self._sources[name]


def points_of(record: Record) -> Iterator[tuple[str, int, float]]:
    """Yield (tag, step, value) of each value that a logger got for one step."""
    step, values = record.get("step", ""), record.get("values")
    if not isinstance(values, dict):
        return
    for tag, value in values.items():
        if isinstance(value, float | int):
            yield tag, step, float(value)


def _names(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - every 50 ms
    except OSError:
        return []
    return sorted(name for name in names if name.removesuffix(".jsonl").isdigit())
