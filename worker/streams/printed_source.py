"""Carries what rank 0 prints to the server as points, each once, with the byte range of the log it stood in."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from domain.messages import Point, PointBatch
from worker.node.state_files import write_whole
from worker.session.client import FileOffsets
from worker.session.failures import OffsetMismatch, RequestFailed, RequestRefused, TooLarge
from worker.streams.mirror import MirroredFile
from worker.streams.points import size_if_same
from worker.streams.printed import PrintedTail

log = logging.getLogger(__name__)
PIECE_BYTES = 128 * 1024
"""Of a log; more than its longest line, and read in a fraction of a second."""
LEAST_PIECE_BYTES = 256
STREAMS = {"logs/rank0.out": "stdout", "logs/rank0.err": "stderr"}


@dataclass
class _Log:
    """One generation of one log."""

    tail: PrintedTail
    stored: int
    """The server's offset: everything behind it that gave no points is not told."""
    read_up_to: int = -1
    waiting: PointBatch | None = None
    piece_bytes: int = PIECE_BYTES
    """Fewer after a batch that was too large to pass; more again with each that does."""

    def read_less(self) -> bool:
        """Begin again behind what is stored, with half of what was read; False when there is no half."""
        if self.piece_bytes < 2 * LEAST_PIECE_BYTES:
            return False
        self.piece_bytes //= 2
        self.tail.offset, self.read_up_to = self.stored, -1
        return True


class PrintedPump:
    """Reads rank 0's stdout and stderr among the files a mirror knows."""

    def __init__(
        self,
        files: Callable[[], Sequence[MirroredFile]],
        offsets_of: Callable[[str, int], FileOffsets],
        send: Callable[[PointBatch], int],
        notes: Path,
    ) -> None:
        self._files, self._offsets_of, self._send, self._notes = files, offsets_of, send, notes
        self._logs: dict[tuple[str, int], _Log] = {}
        self._owners: dict[str, str] | None = None

    def step(self, *, final: bool = False) -> bool:
        """Read a piece of each log and send its points; True when more is waiting.

        `final`: nobody writes any more, and a last line may lack its end. What the server raises goes through.
        """
        more = [self._step(file, final) for file in self._files() if file.path in STREAMS]
        return any(more)

    def _step(self, file: MirroredFile, final: bool) -> bool:
        size, known = size_if_same(file), self._logs.get((file.path, file.generation))
        if size is None:
            return False
        if known is None:
            known = self._open(file)
        if final and not known.tail.final:
            known.tail.final, known.read_up_to = True, -1
        if known.waiting is None and size > known.read_up_to:
            self._read(file, known, size)
        if known.waiting is not None:
            self._deliver(file, known)
        return known.waiting is not None or size > known.read_up_to

    def _open(self, file: MirroredFile) -> _Log:
        offset = self._offsets_of(file.path, file.generation).points_offset
        opened = self._logs[file.path, file.generation] = _Log(PrintedTail(file.source, offset), offset)
        return opened

    def _read(self, file: MirroredFile, known: _Log, size: int) -> None:
        found = known.tail.read(known.piece_bytes)
        if found.end == found.start and known.piece_bytes < PIECE_BYTES:  # a line may be longer
            found = known.tail.read(PIECE_BYTES)
        if found.notice:
            log.warning("%s", found.notice)
        if found.end == found.start:
            known.read_up_to = size
        if found.series:
            known.waiting = PointBatch(
                path=file.path,
                generation=file.generation,
                start=known.stored,
                end=found.end,
                source="printed",
                series=self._named(found.series, file.path),
            )

    def _deliver(self, file: MirroredFile, known: _Log) -> None:
        batch = known.waiting
        if batch is None:
            return
        try:
            known.stored = self._send(batch)
            known.piece_bytes = min(PIECE_BYTES, 2 * known.piece_bytes)
        except OffsetMismatch as mismatch:
            if mismatch.have > (size_if_same(file) or 0):
                raise RequestFailed(f"{file.path} ends before byte {mismatch.have}") from mismatch
            known.stored = known.tail.offset = mismatch.have
            known.read_up_to = -1
        except RequestRefused as refusal:
            if isinstance(refusal, TooLarge) and known.read_less():
                known.waiting = None
                return
            log.warning("%s: points up to byte %d were refused: %s", file.path, batch.end, refusal)
        known.waiting = None

    def _named(self, series: dict[str, list[Point]], path: str) -> dict[str, list[Point]]:
        """A name belongs to the stream that had it first: a bar's loss and a line's are not mixed."""
        if self._owners is None:
            self._owners = _read_owners(self._notes)
        fresh = {tag: path for tag in series if tag not in self._owners}
        if fresh:
            self._owners |= fresh
            with suppress(OSError):  # a full disk: asked again after a restart
                write_whole(self._notes, json.dumps(self._owners))
        return {
            tag if self._owners[tag] == path else f"{STREAMS[path]}/{tag}": points
            for tag, points in series.items()
        }


def _read_owners(notes: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        found = json.loads(notes.read_text())
        if isinstance(found, dict):
            return {str(tag): str(path) for tag, path in found.items()}
    return {}
