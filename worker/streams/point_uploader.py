"""Upload points exactly once: the one place that decides what follows a batch that was sent, lost or refused.

A batch carries the byte range its points were read from, and the server stores both in one transaction. A source
therefore always continues at the offset that the server returned, whatever was repeated or killed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from domain.messages import MOST_BYTES, PointBatch
from worker.session.failures import OffsetMismatch, RequestRefused, ServerMistake, TooLarge
from worker.session.pieces import Sending, together
from worker.streams.omissions import Omissions, Unreadable

log = logging.getLogger(__name__)
BATCH_BYTES = 256 * 1024
"""Bytes of a file whose points make one request."""
MIN_BATCH_BYTES = 256
STEP_BATCHES = 4
"""Batches of one stream in one step."""
STEP_REQUESTS = 16
"""Requests of one stream in one step, one for each large source or for many small ones."""
STEP_BYTES = 4 * 1024 * 1024
"""Bytes of files in one step: a run with thousands of them leaves other runs their turns."""
SMALL_BYTES = 64 * 1024
"""A source of this size is sent as a whole, beside the next ones: thousands of files would take as many requests."""
MOST_TOGETHER = 256
TRIES = 8
"""Tries before a batch is blamed for the server's mistakes; the time between them grows."""

OffsetOf = Callable[[str, int], int]
"""(path, generation) -> the offset up to which the server has the file's points."""


class PointSource(Protocol):
    """One generation of one file that points are read from."""

    path: str
    generation: int

    @property
    def size_bytes(self) -> int:
        """Size of the file now; 0 if there is none."""
        ...

    def read(self, max_bytes: int) -> PointBatch | None:
        """Read the next batch, about `max_bytes` of the file; None if nothing is to be sent now."""
        ...

    def rewind(self, offset: int) -> None:
        """Continue at `offset`, up to which the server has the file's points."""
        ...


@dataclass
class _Progress:
    """The batch of one source that is being sent."""

    batch: PointBatch | None = None
    size_bytes: int = 0
    """Size of the file before the batch was read."""
    max_bytes: int = BATCH_BYTES
    mistakes: int = 0
    has_caught_up: bool = False

    def halve(self, batch: PointBatch) -> bool:
        """Halve the size of batches; return False if it cannot be halved."""
        if self.max_bytes < 2 * MIN_BATCH_BYTES or not batch.series:
            return False
        self.max_bytes = max(MIN_BATCH_BYTES, min(self.max_bytes, batch.end - batch.start) // 2)
        return True


class PointUploader:
    """Uploads the points of one attempt from all sources. Called by one thread."""

    def __init__(
        self,
        send: Callable[[PointBatch], Sending[int]],
        omissions: Omissions,
        unreadable: Unreadable | None = None,
    ) -> None:
        self._send, self._omissions, self._unreadable = send, omissions, unreadable or Unreadable()
        self._progress: dict[tuple[str, int], _Progress] = {}

    def upload(self, source: PointSource) -> Sending[bool]:
        """Send the source's next batch; return False if there was nothing to send.

        Raises every failure of the server that may pass with another try; the batch is then sent again.
        """
        progress = self._progress.setdefault((source.path, source.generation), _Progress())
        if progress.batch is None:
            self._read(source, progress)
        if (batch := progress.batch) is None:
            return False
        try:
            offset = yield from self._deliver(batch, progress)
        except OffsetMismatch as mismatch:
            offset = mismatch.have
        progress.batch, progress.mistakes = None, 0
        if offset > source.size_bytes and offset != batch.end:
            log.warning("%s: the server has points up to byte %d, beyond its end", source.path, offset)
            source.rewind(batch.start)
            return False  # the file was truncated, and its next generation follows
        source.rewind(offset)
        progress.has_caught_up = batch.end <= offset and offset >= progress.size_bytes
        return True

    def _read(self, source: PointSource, progress: _Progress) -> None:
        """Read the next batch; a file that cannot be read has none."""
        if not self._unreadable.is_due(source.path):
            return
        try:
            progress.size_bytes, progress.batch = source.size_bytes, source.read(progress.max_bytes)
        except Exception as error:  # whatever a file contains, it holds up no other
            self._unreadable.failed(source.path, error)
        else:
            self._unreadable.worked(source.path)

    def has_caught_up(self, source: PointSource) -> bool:
        """Whether the last batch reached the end that the file had then; a busy writer has added to it since."""
        return self._progress[source.path, source.generation].has_caught_up

    def _deliver(self, batch: PointBatch, progress: _Progress) -> Sending[int]:
        try:
            offset = yield from self._send(batch)
        except TooLarge as refusal:
            return batch.start if progress.halve(batch) else (yield from self._set_aside(batch, refusal))
        except RequestRefused as refusal:
            return (yield from self._set_aside(batch, refusal))
        except ServerMistake as mistake:
            if not (yield from self._is_to_blame(batch, progress)):
                raise
            return (yield from self._set_aside(batch, mistake))
        progress.max_bytes = min(BATCH_BYTES, 2 * progress.max_bytes)
        return offset

    def _is_to_blame(self, batch: PointBatch, progress: _Progress) -> Sending[bool]:
        """Whether the server failed `TRIES` times, and still accepts the same offset without the points."""
        progress.mistakes += 1
        if progress.mistakes < TRIES:
            return False
        yield from self._send(batch.model_copy(update={"series": {}, "end": batch.start}))
        return True

    def _set_aside(self, batch: PointBatch, error: Exception) -> Sending[int]:
        """Save the batch on disk, then move the server's offset past it. Raises `error` for a batch without points."""
        if not any(batch.series.values()):
            raise error
        self._omissions.set_aside(batch, str(error))
        return (yield from self._send(batch.model_copy(update={"series": {}})))


class PointStream:
    """All sources of one kind."""

    def __init__(
        self,
        sources: Callable[[bool], Iterable[PointSource]],
        uploader: PointUploader,
        *,
        have_own_series: bool = False,
        are_many: bool = False,
    ) -> None:
        """`have_own_series`: no two sources share a series, whose points have to arrive in order.

        `are_many`: small sources are sent together. Which sources follow must not depend on what was read of others."""
        self._sources, self._uploader, self._have_own_series = sources, uploader, have_own_series
        self._most_together = MOST_TOGETHER if are_many else 1
        self._full = 0
        """Batches of this step after which more was waiting."""
        self._first = 0
        """Sources that had their turn in earlier steps."""

    def step(self, *, final: bool = False) -> Sending[int]:
        """Send what was there when it began; return the number of batches, `STEP_BATCHES` if more is waiting.

        `final`: the writers have ended, so incomplete records and lines are read as they are. Raises what
        `PointUploader.upload` raises.
        """
        self._full = 0
        if not self._have_own_series:
            return (yield from self._step_in_turn(final))
        sent = sum((yield from together(self._send_of(source) for source in self._sources(final))))
        return STEP_BATCHES if self._full >= STEP_BATCHES else min(sent, STEP_BATCHES - 1)

    def _step_in_turn(self, final: bool) -> Sending[int]:
        """Send in the order of the sources; those that are left at the end of the step have their turn in the next."""
        sent, requests, sent_bytes, at, first, self._first = 0, 0, 0, self._first, self._first, 0
        for group, size_bytes in _groups(islice(self._sources(final), first, None), self._most_together):
            is_long = requests >= STEP_REQUESTS or sent_bytes >= STEP_BYTES
            if self._full >= STEP_BATCHES or is_long:
                self._first = at if is_long else first
                return STEP_BATCHES
            at += len(group)
            if batches := sum((yield from together(self._send_of(source) for source in group))):
                sent, requests, sent_bytes = sent + batches, requests + 1, sent_bytes + size_bytes
        is_more = first > 0 or self._full >= STEP_BATCHES
        return STEP_BATCHES if is_more else min(sent, STEP_BATCHES - 1)

    def drain(self, *, final: bool = False) -> Sending[bool]:
        """Take a step; return True if more is waiting."""
        return (yield from self.step(final=final)) == STEP_BATCHES

    def _send_of(self, source: PointSource) -> Sending[int]:
        sent = 0
        while self._full < STEP_BATCHES and (yield from self._uploader.upload(source)):
            sent += 1
            if self._uploader.has_caught_up(source):
                break
            self._full += 1
        return sent


def _groups(sources: Iterable[PointSource], most: int) -> Iterator[tuple[list[PointSource], int]]:
    """Yield small sources that follow on each other together, at most so many, any other alone, with their bytes.

    Two sources may share a series, whose points have to arrive in order: of a large one, more batches follow."""
    group, total_bytes = list[PointSource](), 0
    for source in sources:
        size_bytes = _size_of(source) if most > 1 else BATCH_BYTES
        is_small = size_bytes <= SMALL_BYTES
        if group and (not is_small or len(group) == most or total_bytes + size_bytes > MOST_BYTES):
            yield group, total_bytes
            group, total_bytes = [], 0
        if not is_small:
            yield [source], min(size_bytes, BATCH_BYTES)
            continue
        group.append(source)
        total_bytes += size_bytes
    if group:
        yield group, total_bytes


def _size_of(source: PointSource) -> int:
    """Its size; that of a large one where it cannot be told, which its reading tells."""
    with suppress(Exception):
        return source.size_bytes
    return BATCH_BYTES
