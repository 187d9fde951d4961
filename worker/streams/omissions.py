"""Record on disk which parts of an attempt's files did not become points, and report them as findings."""

from __future__ import annotations

import errno
import logging
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import Finding, PointBatch
from domain.text.json_values import storable
from worker.node.regular_files import append, bytes_of
from worker.node.state_files import write_whole
from worker.session.failures import OF_THE_SERVER
from worker.streams.events import Gap

log = logging.getLogger(__name__)
NOTES_FILE = "worker/omissions.json"
SET_ASIDE_FILE = "worker/points-set-aside.jsonl"
MOST_NAMED = 10


class Omission(BaseModel):
    """Damaged and unfinished bytes in one generation of one event file."""

    stretches: int = 0
    size_bytes: int = 0
    first: int = 0
    """Offset of the first damaged stretch."""
    up_to: int = 0
    """End of the last stretch: bytes that are read again after a restart count once."""
    unfinished_bytes: int = 0
    """Bytes of an incomplete record at the end of the file."""

    def add(self, gap: Gap) -> bool:
        """Add a gap; return False if it was counted before."""
        if gap.end <= self.up_to:
            return False
        if gap.why == "unfinished":
            self.unfinished_bytes = gap.end - gap.start
        else:
            self.first = self.first if self.stretches else gap.start
            self.stretches += gap.start > self.up_to or not self.stretches
            self.size_bytes += gap.end - max(gap.start, self.up_to)
        self.up_to = gap.end
        return True


class SetAside(BaseModel):
    """Points of one file that the server did not accept."""

    points: int = 0
    up_to: int = 0
    why: str = ""


class _Notes(BaseModel):
    files: dict[str, Omission] = {}
    set_aside: dict[str, SetAside] = {}


class Omissions:
    """Omissions of one attempt on this node."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._notes = folder, _Notes()
        with suppress(OSError, ValueError):
            self._notes = _Notes.model_validate_json(bytes_of(folder / NOTES_FILE))

    def record_gaps(self, path: str, generation: int, gaps: Sequence[Gap]) -> None:
        """Record the unreadable bytes of an event file. Call it before the points around them are sent."""
        if not gaps:
            return
        record = self._notes.files.setdefault(_name(path, generation), Omission())
        changes = [record.add(gap) for gap in gaps]
        if any(changes):
            log.warning("%s: %s", path, _describe(record))
            self._save()

    def set_aside(self, batch: PointBatch, error: str) -> None:
        """Save a batch that the server does not accept. Raises OSError if the disk is full: the batch then waits."""
        record = self._notes.set_aside.setdefault(_name(batch.path, batch.generation), SetAside())
        if batch.end <= record.up_to:
            return  # saved before, but the server's offset has not moved yet
        target = self._folder / SET_ASIDE_FILE
        target.parent.mkdir(parents=True, exist_ok=True)
        append(target, batch.model_dump_json() + "\n")
        record.points += sum(map(len, batch.series.values()))
        record.up_to, record.why = batch.end, error[:300]
        log.error("%s: points at byte %d are set aside: %s", batch.path, batch.start, error)
        self._save()

    @property
    def has_set_aside(self) -> bool:
        """Whether points of this attempt are on this node only."""
        return bool(self._notes.set_aside)

    def findings(self) -> list[Finding]:
        """Return one finding for all damaged event files, and one for all points that the server did not accept."""
        return self._damage() + self._refusals()

    def _refusals(self) -> list[Finding]:
        if not self._notes.set_aside:
            return []
        sentences = [
            f"{name[-300:]}: {_count(record.points)} refused by the server: {record.why}"
            for name, record in list(self._notes.set_aside.items())[:MOST_NAMED]
        ]
        return [
            Finding(
                kind="points refused",
                evidence=" ".join(sentences),
                meaning="These points are missing from the curves; all points before and after them are stored.",
                fix=f"They are saved on the node in {self._folder / SET_ASIDE_FILE}, one batch per line. Report the "
                "sentence above; if it mentions a server error, the dashboard's log has the details.",
            )
        ]

    def _damage(self) -> list[Finding]:
        damaged = self._notes.files
        if not damaged:
            return []
        sentences = [f"{name[-300:]}: {_describe(record)}" for name, record in list(damaged.items())[:MOST_NAMED]]
        if more := len(damaged) - len(sentences):
            sentences.append(f"And {more} more files.")
        return [
            Finding(
                kind="event file damaged",
                evidence=" ".join(sentences),
                meaning="Records with wrong checksums were skipped: the values logged there are "
                "missing from the curves. All other records of the file were read.",
                fix="A record at the very end is cut off when the writer is killed; nothing else is lost. "
                "Damage before it comes from a disk, a network file system or memory: check the node's kernel "
                f"log. The file remains on the node, below {self._folder}.",
            )
        ]

    def _save(self) -> None:
        with suppress(OSError):  # a full disk: the findings are still reported while this worker runs
            write_whole(self._folder / NOTES_FILE, self._notes.model_dump_json())


def _count(points: int) -> str:
    return f"{points:,} points were" if points != 1 else "one point was"


def _name(path: str, generation: int) -> str:
    return f"{path} ({generation})" if generation else path


def _describe(record: Omission) -> str:
    clauses = []
    if record.stretches:
        stretches = f"{record.stretches:,} places are" if record.stretches > 1 else "one place is"
        clauses.append(
            f"{stretches} damaged (from byte {record.first:,} on, {record.size_bytes:,} bytes in all) and skipped"
        )
    if record.unfinished_bytes:
        clauses.append(f"its last {record.unfinished_bytes:,} bytes are an incomplete record")
    return "; ".join(clauses) + "."


# What of an attempt cannot be read: each such stream is tried again, told in a finding, and holds up no end.

PATIENCE_S = 30.0
"""So long an ended attempt waits for a stream whose failure may pass."""
RETRY_S = 5.0


@dataclass
class _Failure:
    since: float
    retry_at: float
    reason: str
    may_pass: bool
    """Whether another try may succeed: a network file system comes back, a damaged file stays damaged."""


class Unreadable:
    """The streams and files of one attempt that fail now, by their names. Called by one thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._failures: dict[str, _Failure] = {}

    def is_due(self, name: str) -> bool:
        """Whether to read it now: it has not failed, or long enough ago."""
        failure = self._failures.get(name)
        return failure is None or self._clock.now() >= failure.retry_at

    def failed(self, name: str, error: Exception) -> None:
        """Note that reading it raised `error`; it is due again some seconds later."""
        now = self._clock.now()
        reason = storable(f"{type(error).__name__}: {error}"[:300])
        failure = self._failures.get(name)
        if failure is None or failure.reason != reason:
            text = storable("".join(traceback.format_exception(error)).rstrip())
            log.warning("%s cannot be read, all else continues: %s", storable(name), text)
        since = failure.since if failure else now
        self._failures[name] = _Failure(since, now + RETRY_S, reason, isinstance(error, OSError))

    def worked(self, name: str) -> None:
        """Note that it can be read again."""
        if self._failures.pop(name, None):
            log.info("%s can be read again", storable(name))

    def has_failed(self, name: str) -> bool:
        """Whether it failed when it was last tried."""
        return name in self._failures

    @property
    def may_recover(self) -> bool:
        """Whether something failed so recently that an end should wait for it."""
        now = self._clock.now()
        return any(failure.may_pass and now - failure.since < PATIENCE_S for failure in self._failures.values())

    def judge(self, name: str, failure: Exception | None) -> bool:
        """Note how a step of the stream ended; return whether it worked.

        Raises what the client raises, and OSError where the node's disk is full: then the data waits for space."""
        if failure is None:
            self.worked(name)
            return True
        is_full = isinstance(failure, OSError) and failure.errno in (errno.ENOSPC, errno.EDQUOT)
        if is_full or isinstance(failure, OF_THE_SERVER):
            raise failure
        self.failed(name, failure)
        return False

    def findings(self) -> list[Finding]:
        """Return one finding for everything unreadable now."""
        if not self._failures:
            return []
        sentences = [
            f"{storable(name)[-300:]}: {failure.reason.rstrip('.')}."
            for name, failure in list(self._failures.items())[:MOST_NAMED]
        ]
        if more := len(self._failures) - len(sentences):
            sentences.append(f"And {more} more.")
        return [
            Finding(
                kind="not read",
                evidence=" ".join(sentences),
                meaning="The values in it are missing from the curves. Everything else of the run is stored, and the "
                "file is still on its node.",
                fix="Open the file on its node: it may be damaged, or not what its name "
                "says. If it is intact, report the sentence above with the worker's log.",
            )
        ]
