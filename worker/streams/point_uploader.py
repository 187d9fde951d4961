"""Upload points exactly once: the one place that decides what follows a batch that was sent, lost or refused.

A batch carries the byte range its points were read from, and the server stores both in one transaction. A source
therefore always continues at the offset that the server returned, whatever was repeated or killed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Protocol

from domain.messages import MOST_BYTES, PointBatch
from worker.session.failures import OffsetMismatch, RequestRefused, ServerMistake, TooLarge
from worker.session.outbox import Outgoing, StreamStep
from worker.session.pieces import Answer, Piece
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


@dataclass(frozen=True)
class PointUploader:
    """The pieces of an attempt's points, and the places for what cannot be read or is refused."""

    piece_of: Callable[[PointBatch], Piece]
    omissions: Omissions
    unreadable: Unreadable = field(default_factory=Unreadable)
    stored: Callable[[PointBatch], None] = lambda _: None
    """Called with each batch that the server has stored."""


class SourceUpload(Outgoing):
    """The batches of one source, one after another.

    `answered` raises every failure of the server that may pass with another try; the batch is then sent again."""

    def __init__(self, uploader: PointUploader) -> None:
        self._uploader = uploader
        self._batch: PointBatch | None = None
        """The batch that was read and is not stored."""
        self._instead: PointBatch | None = None
        """The batch without its points, which is sent in its stead."""
        self._mistake: ServerMistake | None = None
        """The server's mistake for which the batch is to blame if the server takes the one without points."""
        self._mistakes, self._max_bytes = 0, BATCH_BYTES
        self._size_bytes = 0.0
        """Size of the file before the batch was read, to which a busy writer has added since; infinite where an earlier
        step read it: the size at that time is no end to this step."""

    def begin(self, source: PointSource, step: PointStep) -> None:
        """Begin a step that reads from this source."""
        self._source, self._step, self._has_more = source, step, True
        self._instead = self._mistake = None
        if self._batch is not None:
            self._size_bytes = math.inf

    def pending(self) -> list[Piece]:
        """Return the next batch, or again the one that is not stored; none once others are to have their turn."""
        if self._instead is None and (self._step.is_long or not self._has_more):
            return []
        if self._batch is None:
            self._read()
        sent = self._instead or self._batch
        return [] if sent is None else [self._uploader.piece_of(sent)]

    def answered(self, answers: Sequence[Answer]) -> None:
        """Go on behind the stored bytes, or with what follows a refusal."""
        batch = self._batch
        assert batch is not None
        offset = self._offset_after(answers[0], batch)
        if offset is None:
            return
        self._batch, self._mistakes = None, 0
        if offset > self._source.size_bytes and offset != batch.end:
            log.warning("%s: the server has points up to byte %d, beyond its end", self._source.path, offset)
            self._source.rewind(batch.start)
            self._has_more = False  # the file was truncated, and its next generation follows
            return
        self._source.rewind(offset)
        self._has_more = offset < batch.end or offset < self._size_bytes
        self._step.sent += 1
        self._step.full += self._has_more

    def _read(self) -> None:
        """Read the next batch; a file that cannot be read has none."""
        source, unreadable = self._source, self._uploader.unreadable
        if not unreadable.is_due(source.path):
            return
        try:
            self._size_bytes, self._batch = source.size_bytes, source.read(self._max_bytes)
        except Exception as error:  # whatever a file contains, it holds up no other
            unreadable.failed(source.path, error)
        else:
            unreadable.worked(source.path)

    def _offset_after(self, answer: Answer, batch: PointBatch) -> int | None:
        """The offset that the server has now; None if something is to be sent in the batch's stead."""
        instead, mistake, self._instead, self._mistake = self._instead, self._mistake, None, None
        if isinstance(answer, OffsetMismatch):
            return answer.have
        if isinstance(answer, int):
            if mistake is not None:
                self._set_aside(batch, mistake)
                return None
            if instead is None:
                self._max_bytes = min(BATCH_BYTES, 2 * self._max_bytes)
            self._uploader.stored(instead or batch)
            return answer
        if instead is None:
            return self._offset_after_refusal(answer, batch)
        raise answer

    def _offset_after_refusal(self, refusal: Exception, batch: PointBatch) -> int | None:
        """A batch is to blame if the server fails `TRIES` times, and still accepts the same offset without points."""
        if isinstance(refusal, TooLarge) and self._halve(batch):
            return batch.start
        if isinstance(refusal, RequestRefused):
            self._set_aside(batch, refusal)
        elif isinstance(refusal, ServerMistake) and self._mistakes + 1 >= TRIES:
            self._mistake, self._instead = refusal, batch.model_copy(update={"series": {}, "end": batch.start})
        else:
            self._mistakes += isinstance(refusal, ServerMistake)
            raise refusal
        return None

    def _halve(self, batch: PointBatch) -> bool:
        """Halve the size of batches; return False if it cannot be halved."""
        if self._max_bytes < 2 * MIN_BATCH_BYTES or not batch.series:
            return False
        self._max_bytes = max(MIN_BATCH_BYTES, min(self._max_bytes, batch.end - batch.start) // 2)
        return True

    def _set_aside(self, batch: PointBatch, error: Exception) -> None:
        """Save the batch on disk, then move the server's offset past it. Raises `error` for a batch without points."""
        if not any(batch.series.values()):
            raise error
        self._uploader.omissions.set_aside(batch, str(error))
        self._instead = batch.model_copy(update={"series": {}})


class PointStep(StreamStep):
    """A step of all sources of one kind."""

    full = 0
    """Batches after which more was waiting."""

    @property
    def is_long(self) -> bool:
        """Whether others are to have their turn."""
        return self.full >= STEP_BATCHES


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
        self._uploads: dict[tuple[str, int], SourceUpload] = {}
        self._first = 0
        """Sources that had their turn in earlier steps."""

    def step(self, *, final: bool = False) -> PointStep:
        """Return a step that sends what is there when it begins, about `STEP_BATCHES` and no more.

        `final`: the writers have ended, so incomplete records and lines are read as they are."""
        return PointStep(partial(self._at_once if self._have_own_series else self._in_turn, final))

    def _at_once(self, final: bool, step: PointStep) -> Iterator[Iterable[Outgoing]]:
        yield self._uploads_of(self._sources(final), step)
        step.has_more = step.is_long

    def _in_turn(self, final: bool, step: PointStep) -> Iterator[Iterable[Outgoing]]:
        """Yield the sources in their order; those that are left at the end of the step have their turn in the next."""
        requests, sent_bytes, at, first, self._first = 0, 0, self._first, self._first, 0
        for group, size_bytes in _groups(islice(self._sources(final), first, None), self._most_together):
            is_long = requests >= STEP_REQUESTS or sent_bytes >= STEP_BYTES
            if step.is_long or is_long:
                self._first, step.has_more = at if is_long else first, True
                return
            at, sent_before = at + len(group), step.sent
            yield self._uploads_of(group, step)
            if step.has_failed:  # the next sources may go on with its series
                return
            if step.sent > sent_before:
                requests, sent_bytes = requests + 1, sent_bytes + size_bytes
        step.has_more = first > 0 or step.is_long

    def _uploads_of(self, sources: Iterable[PointSource], step: PointStep) -> Iterator[SourceUpload]:
        for source in sources:
            upload = self._uploads.setdefault((source.path, source.generation), SourceUpload(self._uploader))
            upload.begin(source, step)
            yield upload


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
