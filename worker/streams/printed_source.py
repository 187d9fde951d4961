"""Rank 0's stdout and stderr as point sources."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from domain.messages import Point, PointBatch
from worker.node.state_files import read_object, write_whole
from worker.streams.mirror import MirroredFile
from worker.streams.point_uploader import BATCH_BYTES, OffsetOf
from worker.streams.points import size_if_same
from worker.streams.printed import PrintedTail

log = logging.getLogger(__name__)
STREAMS = {"logs/rank0.out": "stdout", "logs/rank0.err": "stderr"}

Series = dict[str, list[Point]]


class PrintedSource:
    """One generation of one log. Bytes without points are sent with the next points behind them."""

    def __init__(self, file: MirroredFile, offset: int, name: Callable[[Series, str], Series]) -> None:
        self.path, self.generation = file.path, file.generation
        self._file, self._name = file, name
        self._tail = PrintedTail(file.source, offset)
        self._sent_up_to, self._read_up_to = offset, -1

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if it is missing or was replaced."""
        return size_if_same(self._file) or 0

    def finish(self) -> None:
        """Read a last line without its end: the writer has ended."""
        if not self._tail.final:
            self._tail.final, self._read_up_to = True, -1

    def read(self, max_bytes: int) -> PointBatch | None:
        """Read on to the next lines with points, about `max_bytes` at a time; None if there are none."""
        size = size_if_same(self._file)
        while size is not None and self._tail.offset < size > self._read_up_to:
            lines = self._tail.read(max_bytes)
            if lines.end == lines.start and max_bytes < BATCH_BYTES:  # a line may be longer
                lines = self._tail.read(BATCH_BYTES)
            if lines.notice:
                log.warning("%s", lines.notice)
            if lines.end == lines.start:
                self._read_up_to = size
            if lines.series:
                return self._batch(lines.end, lines.series)
        return None

    def rewind(self, offset: int) -> None:
        """Continue reading at `offset`."""
        if offset != self._tail.offset:
            self._tail.offset, self._read_up_to = offset, -1
        self._sent_up_to = offset

    def _batch(self, end: int, series: Series) -> PointBatch:
        return PointBatch(
            path=self.path, generation=self.generation, start=self._sent_up_to, end=end, source="printed",
            series=self._name(series, self.path),
        )  # fmt: skip


class PrintedLogs:
    """The point sources among the logs of a mirror."""

    def __init__(
        self, files: Callable[[], Sequence[MirroredFile]], offset_of: OffsetOf, owners_file: Path
    ) -> None:
        self._files, self._offset_of, self._owners_file = files, offset_of, owners_file
        self._sources: dict[tuple[str, int], PrintedSource] = {}
        self._owners: dict[str, str] | None = None

    def sources(self, final: bool) -> Iterator[PrintedSource]:
        """Yield the source of each stream of rank 0; `final`: it has ended. Raises what `offset_of` raises."""
        for file in self._files():
            if file.path not in STREAMS or size_if_same(file) is None:
                continue
            key = (file.path, file.generation)
            if key not in self._sources:
                self._sources[key] = PrintedSource(file, self._offset_of(*key), self._named)
            if final:
                self._sources[key].finish()
            yield self._sources[key]

    def _named(self, series: Series, path: str) -> Series:
        """Name the series: a name belongs to the stream that had it first, so a bar's loss and a line's stay apart."""
        if self._owners is None:
            owners = read_object(self._owners_file)
            self._owners = {str(tag): str(owner) for tag, owner in owners.items()}
        new_owners = {tag: path for tag in series if tag not in self._owners}
        if new_owners:
            self._owners |= new_owners
            with suppress(OSError):  # a full disk: decided again after a restart
                write_whole(self._owners_file, json.dumps(self._owners))
        return {
            tag if self._owners[tag] == path else f"{STREAMS[path]}/{tag}": points
            for tag, points in series.items()
        }
