"""Carries points from event files to the server, each once, whatever is repeated or killed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from domain.messages import PointBatch
from worker.session.client import FileOffsets
from worker.session.failures import OffsetMismatch, RequestRefused, TooLarge
from worker.streams.events import EventTail, main_writer_dir, series_name
from worker.streams.mirror import MirroredFile
from worker.streams.omissions import Omissions

log = logging.getLogger(__name__)
BATCH_BYTES = 256 * 1024
"""Of the event file; the points in it make one request."""
LEAST_BATCH_BYTES = 256
STEP_BATCHES = 4


@dataclass
class _Reader:
    """One generation of one event file, and the batch on its way."""

    tail: EventTail
    waiting: PointBatch | None = None
    read_up_to: int = -1
    """The size of the file when all its whole records had been sent."""
    batch_bytes: int = BATCH_BYTES
    """Fewer after a batch that was too large to pass; more again with each that does."""

    awaits_data: bool = False
    """It ends in zeros that may still be filled, so its size does not tell whether it is read."""

    def read_less(self, batch: PointBatch) -> bool:
        """Begin again where the batch did, with half of it; False when there is no half."""
        if self.batch_bytes < 2 * LEAST_BATCH_BYTES or not batch.series:
            return False
        self.batch_bytes = max(LEAST_BATCH_BYTES, min(self.batch_bytes, batch.end - batch.start) // 2)
        self.tail.offset, self.waiting = batch.start, None
        return True


class PointPump:
    """Reads the event files a mirror knows, and sends their points with the byte range they came from."""

    def __init__(
        self,
        files: Callable[[], Sequence[MirroredFile]],
        offsets_of: Callable[[str, int], FileOffsets],
        send: Callable[[PointBatch], int],
        notes: Path,
        omissions: Omissions,
    ) -> None:
        self._files, self._offsets_of, self._send = files, offsets_of, send
        self._omissions = omissions
        self._readers: dict[tuple[str, int], _Reader] = {}
        self._notes = notes
        self._main_dir: str | None = None

    def step(self, *, final: bool = False) -> int:
        """Send what is new; the number of batches sent, `STEP_BATCHES` when more is waiting.

        `final`: nobody writes any more, what is not whole is given up. What the server raises goes through.
        """
        sent = 0
        for file in self._files():
            size = size_if_same(file)
            reader = self._readers.get((file.path, file.generation))
            if size is None:
                continue
            if reader is None:
                reader = self._open(file)
            if final and not reader.tail.final:
                reader.tail.final, reader.read_up_to = True, -1
            if size <= reader.read_up_to:
                continue
            while sent < STEP_BATCHES and self._send_batch(file, reader, size):
                sent += 1
        return sent

    def _open(self, file: MirroredFile) -> _Reader:
        offset = self._offsets_of(file.path, file.generation).points_offset
        reader = self._readers[file.path, file.generation] = _Reader(EventTail(file.source, offset))
        return reader

    def _send_batch(self, file: MirroredFile, reader: _Reader, size: int) -> bool:
        """True when something was sent, so that there may be more."""
        if reader.waiting is None:
            reader.waiting = self._read(file, reader)
        batch = reader.waiting
        if batch is None:
            reader.read_up_to = -1 if reader.awaits_data else size
            return False
        try:
            reader.tail.offset = self._send(batch)
            reader.batch_bytes = min(BATCH_BYTES, 2 * reader.batch_bytes)
        except OffsetMismatch as mismatch:
            if (
                mismatch.have > size
            ):  # not the server's word, or the file was truncated and is soon another one
                log.warning(
                    "%s: points up to byte %d were asked for, beyond its end", file.path, mismatch.have
                )
                return False
            reader.tail.offset = mismatch.have
        except RequestRefused as refusal:
            if isinstance(refusal, TooLarge) and reader.read_less(batch):
                return True
            log.warning("%s: points at byte %d were refused: %s", file.path, batch.start, refusal)
            reader.waiting = batch.model_copy(update={"series": {}})
            if not batch.series:
                raise
            return True
        reader.waiting = None
        return True

    def _read(self, file: MirroredFile, reader: _Reader) -> PointBatch | None:
        found = reader.tail.read(reader.batch_bytes)
        reader.awaits_data = found.awaits_data
        if found.notice:
            log.warning("%s", found.notice)
        self._omissions.record_gaps(file.path, file.generation, found.gaps)
        if found.end == found.start:
            return None
        return PointBatch(
            path=file.path,
            generation=file.generation,
            start=found.start,
            end=found.end,
            series={self._name(tag, file.path): points for tag, points in found.series.items()},
        )

    def _name(self, tag: str, path: str) -> str:
        main_dir = _shown(self._remember_main_dir())
        return series_name(tag, _shown(str(PurePosixPath(path).parent)), main_dir)

    def _remember_main_dir(self) -> str:
        """The first writer's directory keeps plain names for good, also after a restart of the worker."""
        if self._main_dir is None:
            try:
                self._main_dir = self._notes.read_text()
            except OSError:
                found = main_writer_dir([Path(file.path) for file in self._files()])
                self._main_dir = str(found or "")
                with suppress(OSError):  # a full disk: the same answer is found again
                    self._notes.parent.mkdir(parents=True, exist_ok=True)
                    self._notes.write_text(self._main_dir)
        return self._main_dir


def size_if_same(file: MirroredFile) -> int | None:
    """The file's size now, unless it was replaced and the mirror has not noticed yet."""
    try:
        status = file.source.lstat()
    except OSError:
        return None
    return status.st_size if status.st_ino == file.inode else None


def _shown(directory: str) -> str:
    """As the script knows it: below its working directory."""
    return directory.partition("/")[2] if directory.startswith(("work/", "workdir/")) else directory
