"""Event files as point sources."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from domain.messages import PointBatch
from worker.streams.events import EventTail, main_writer_dir, series_name
from worker.streams.mirror import MirroredFile
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import OffsetOf

log = logging.getLogger(__name__)


class EventFileSource:
    """One generation of one event file."""

    def __init__(
        self, file: MirroredFile, offset: int, name: Callable[[str, str], str], omissions: Omissions
    ) -> None:
        self.path, self.generation = file.path, file.generation
        self._file, self._name, self._omissions = file, name, omissions
        self._tail = EventTail(file.source, offset)
        self._read_up_to = -1
        """Size of the file when all its complete records had been sent."""

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if it is missing or was replaced."""
        return size_if_same(self._file) or 0

    def finish(self) -> None:
        """Read an incomplete end as it is: the writer has ended."""
        if not self._tail.final:
            self._tail.final, self._read_up_to = True, -1

    def read(self, max_bytes: int) -> PointBatch | None:
        """Read the next complete records, about `max_bytes`; None if there are none."""
        size = size_if_same(self._file)
        if size is None or size <= self._read_up_to:
            return None
        records = self._tail.read(max_bytes)
        if records.notice:
            log.warning("%s", records.notice)
        self._omissions.record_gaps(self.path, self.generation, records.gaps)
        if records.end == records.start:
            self._read_up_to = -1 if records.awaits_data else size
            return None
        series = {self._name(tag, self.path): points for tag, points in records.series.items()}
        return PointBatch(
            path=self.path, generation=self.generation, start=records.start, end=records.end, series=series
        )

    def rewind(self, offset: int) -> None:
        """Continue reading at `offset`."""
        self._tail.offset = offset


class EventFiles:
    """The point sources among the event files of a mirror."""

    def __init__(
        self,
        files: Callable[[], Sequence[MirroredFile]],
        offset_of: OffsetOf,
        main_writer_file: Path,
        omissions: Omissions,
    ) -> None:
        self._files, self._offset_of, self._omissions = files, offset_of, omissions
        self._sources: dict[tuple[str, int], EventFileSource] = {}
        self._main_writer_file = main_writer_file
        self._main_dir: str | None = None

    def sources(self, final: bool) -> Iterator[EventFileSource]:
        """Yield the source of each event file; `final`: the writers have ended. Raises what `offset_of` raises."""
        for file in self._files():
            if size_if_same(file) is None:
                continue
            key = (file.path, file.generation)
            if key not in self._sources:
                self._sources[key] = EventFileSource(file, self._offset_of(*key), self._name, self._omissions)
            if final:
                self._sources[key].finish()
            yield self._sources[key]

    def _name(self, tag: str, path: str) -> str:
        return series_name(
            tag, _below_working_directory(str(PurePosixPath(path).parent)), self._main_writer_dir()
        )

    def _main_writer_dir(self) -> str:
        """Return the first writer's directory, which keeps plain names also after a restart of the worker."""
        if self._main_dir is None:
            try:
                self._main_dir = self._main_writer_file.read_text()
            except OSError:
                directory = main_writer_dir([Path(file.path) for file in self._files()])
                self._main_dir = str(directory or "")
                with suppress(OSError):  # a full disk: the next look gives the same answer
                    self._main_writer_file.parent.mkdir(parents=True, exist_ok=True)
                    self._main_writer_file.write_text(self._main_dir)
        return _below_working_directory(self._main_dir)


def size_if_same(file: MirroredFile) -> int | None:
    """Return the file's size now; None if it is missing, or was replaced and the mirror has not noticed yet."""
    try:
        status = file.source.lstat()
    except OSError:
        return None
    return status.st_size if status.st_ino == file.inode else None


def _below_working_directory(directory: str) -> str:
    return directory.partition("/")[2] if directory.startswith(("work/", "workdir/")) else directory
