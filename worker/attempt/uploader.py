"""Uploads one attempt's output: points first, then logs and event files, and checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from domain.assignments import Assignment
from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import SCRIPT_KINDS, Finding, PointBatch
from domain.spec import RunSpec
from worker.attempt.delivery import Remaining
from worker.checkpoints.upload import CheckpointUploader
from worker.checkpoints.watching import CheckpointWatch, incomplete_findings
from worker.hardware.sampler import HardwareFile
from worker.loggers.store_source import SharedNames
from worker.loggers.stores import LoggerStores
from worker.monitor.probe_points import ProbeFiles
from worker.monitor.probe_reader import FOLDER as PROBE_FOLDER
from worker.monitor.profiles import ProfileReporter
from worker.monitor.reporter import FindingsReporter
from worker.node import processes
from worker.node.attempt_files import EXISTING_FILE, POINTS_FILE
from worker.node.run_files import existing_files
from worker.session.answers import FileOffsets
from worker.session.client import Client, TaskRef
from worker.session.pieces import Sending, at_once, bytes_piece, in_turn, points_piece, sent, together
from worker.streams.mirror import FileMirror
from worker.streams.omissions import Omissions, Unreadable
from worker.streams.point_uploader import PointStream, PointUploader
from worker.streams.points import EventFiles, LoggerFiles
from worker.streams.printed_source import PrintedLogs
from worker.streams.series_limit import SeriesLimit, left_out_findings
from worker.streams.writers import RanksOfProcesses, Writers

log = logging.getLogger(__name__)
MIRROR_STEP_BYTES = 2 * 1024 * 1024


class AttemptUploader:
    """Uploads the output of one attempt in one thread; its `checkpoints` are copied and uploaded in two others."""

    def __init__(
        self, folder: Path, spec: RunSpec, client: Client, task: TaskRef, label: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._client, self._task, self._label, self._clock = client, task, label, clock
        self._points_file, self._has_points = folder / POINTS_FILE, False
        roots = [folder / "work"] + ([Path(spec.workdir)] if spec.workdir else [])
        ignore = existing_files(folder / EXISTING_FILE)
        self._mirror = FileMirror(
            folder, roots, self._bytes_of, self._append, ignore=ignore, step_bytes=MIRROR_STEP_BYTES,
            most=client.body_limit.most, mask=task.mask,
        )  # fmt: skip
        self._omissions, self._unreadable = Omissions(folder), Unreadable()
        self._limit = SeriesLimit(folder / SERIES_FILE)
        self._points, self._printed, self._probe, self._hardware = self._point_streams(folder)
        self._names = SharedNames(folder / SHARED_NAMES_FILE, lambda: bool(self._mirror.event_files()), clock)
        self._logger_stores = LoggerStores(
            folder, roots, self._points_offset_of, self._names, self._events.hyperparameters, self._omissions, clock
        )
        self._stores = PointStream(
            self._logger_stores.sources,
            PointUploader(self._store_points, self._omissions, self._unreadable),
        )
        self.reporter = FindingsReporter(folder, spec, client, task, label, self._omissions, clock)
        self._profiles = ProfileReporter(folder, client, task, label)
        watch = CheckpointWatch(
            roots, folder / "outbox", ignore=ignore, is_mapped=_is_mapped_by(label, task.node_rank), clock=clock
        )
        self.checkpoints = CheckpointUploader(watch, client, task, label, clock)
        self.reporter.refused_data = self._refusal_findings
        self._points_schedule, self._mirror_schedule = (
            _Schedule(POINTS_WATCHED_EVERY_S),
            _Schedule(MIRROR_WATCHED_EVERY_S),
        )
        self._printed_schedule, self._probe_schedule = (
            _Schedule(PRINTED_WATCHED_EVERY_S),
            _Schedule(PROBE_WATCHED_EVERY_S),
        )
        self._hardware_schedule = _Schedule(PROBE_WATCHED_EVERY_S)
        self._stores_schedule = _Schedule(PROBE_WATCHED_EVERY_S)
        self.points_sent_at = float("-inf")
        """When points of the script were last sent, in seconds of the clock's `now`."""
        self._has_points_left = True
        """After the end: whether points are still to be sent."""
        self._has_final_findings = False
        """Whether the final findings, with the outcome of every checkpoint, have been queued for the server."""
        self._findings_of: tuple[bool, bool] | None = None
        """Whether, at the last final findings, all checkpoints were copied and had their outcome."""

    def request(self, assignment: Assignment) -> None:
        """Pass on the requests that came with the assignment."""
        self._printed_logs.use(assignment.spec.printed_pattern)
        self.reporter.request_stacks(assignment.stacks_requested_at)
        self._profiles.request(assignment.profile)

    def upload(self, now: float, *, watched: bool) -> Sending[bool]:
        """Upload new data that is due; True if more is waiting. Passes the client's exceptions on.

        If the server fails at one stream, the other streams are uploaded first."""
        watched = watched or self._profiles.is_pending
        return in_turn(
            lambda: self._upload_streams(now, watched),
            # It compares with the names of others.
            lambda: self._stores_schedule.take(now, watched, lambda: self._guarded("loggers", self._stores.drain)),
            lambda: self._guarded("findings", lambda: at_once(lambda: self.reporter.step(now))),
            lambda: self._guarded("profiles", lambda: at_once(self._profiles.step)),
        )

    def _guarded(self, name: str, step: Callable[[], Sending[bool]]) -> Sending[bool]:
        return self._unreadable.guarded(name, step)

    def _upload_streams(self, now: float, watched: bool) -> Sending[bool]:
        """Upload all streams in step, so that what they have makes one request."""
        due: tuple[tuple[_Schedule, Callable[[], Sending[bool]]], ...] = (
            (self._points_schedule, lambda: self._guarded("event files", self._points.drain)),
            (self._mirror_schedule, lambda: self._mirror_step(now)),
            (self._printed_schedule, lambda: self._guarded("printed lines", self._printed.drain)),
            (self._probe_schedule, lambda: self._guarded("probe's records", self._probe.drain)),
            (self._hardware_schedule, lambda: self._guarded("hardware samples", self._hardware.drain)),
        )
        return any((yield from together(schedule.take(now, watched, step) for schedule, step in due)))

    def upload_remaining(self) -> Sending[bool]:
        """Upload everything after the end, due or not; True if more is waiting."""
        self._mirror.finish()
        more = yield from in_turn(
            self._remaining_streams, lambda: self._guarded("profiles", lambda: at_once(self._profiles.step))
        )
        if not (more or self._unreadable.may_recover or self._has_final_findings):
            self._finish_findings(self.checkpoints.all_taken, self.checkpoints.is_done)
        return more

    def _finish_findings(self, all_taken: bool, is_done: bool) -> None:
        """Report the final findings when all checkpoints are copied, and again when each is stored or refused."""
        if self._findings_of != (all_taken, is_done):
            self.reporter.finish(incomplete_findings(self.checkpoints.unfinished()) if all_taken else [])
            self._findings_of = (all_taken, is_done)
        self._has_final_findings = is_done

    def _remaining_streams(self) -> Sending[bool]:
        """The mirror begins: a restarted worker may find an event file that was uploaded before, but not all of its
        points."""
        streams = (
            self._mirror_step(float("inf"), 0),
            self._guarded("event files", self._finish_points),
            self._guarded("printed lines", lambda: self._printed.drain(final=True)),
            self._guarded("probe's records", lambda: self._probe.drain(final=True)),
            self._guarded("hardware samples", lambda: self._hardware.drain(final=True)),
        )
        more_bytes, *more_points = yield from together(streams)
        self._has_points_left = any(more_points) or (more_bytes and self._mirror.has_more_files)
        return more_bytes or any(more_points)

    def remaining(self) -> Remaining:
        """Return how much is sent after the end, and how much is not."""
        self._mirror.finish()
        with suppress(OSError):  # then the files count as they were at the last look
            self._mirror.pending_bytes()
        mirrored, total = self._mirror.sent_and_total()
        copied, of_copies = self.checkpoints.sent_and_total()
        return Remaining(
            mirrored + copied,
            total + of_copies,
            has_points=self._has_points_left,
            checkpoints=tuple(copy.name for copy in self.checkpoints.pending()),
            awaits_checkpoints=not self.checkpoints.is_done,
        )

    @property
    def is_complete(self) -> bool:
        """Whether the server has everything; valid after the end, once `upload_remaining` has nothing left."""
        is_mirrored = self._unreadable.has_failed(MIRROR) or self._mirror.pending_bytes() == 0
        return self._has_final_findings and self.checkpoints.is_done and is_mirrored

    def event_files(self) -> list[Path]:
        """The attempt's event files on this node. Raises OSError."""
        return self._mirror.found_event_files()

    def _mirror_step(self, now: float, enough_bytes: int = MIRROR_STEP_BYTES - 1) -> Sending[bool]:
        def step() -> Sending[bool]:
            sent_bytes = yield from self._mirror.step(now)
            return sent_bytes > enough_bytes or self._mirror.has_more_files

        return self._guarded(MIRROR, step)

    def _finish_points(self) -> Sending[bool]:
        """Then compare loggers' files with all that others have got, and wait for nothing; True if more is waiting."""
        if (yield from self._points.drain(final=True)):
            return True
        self._logger_stores.freeze()
        return (yield from self._stores.step()) > 0 or (yield from self._stores.step(final=True)) > 0

    def _point_streams(self, folder: Path) -> tuple[PointStream, PointStream, PointStream, PointStream]:
        """Points of event files and other loggers, of printed lines, of the probe and of the hardware."""
        uploader = PointUploader(self._store_points, self._omissions, self._unreadable)
        logged = PointUploader(self._store_logged, self._omissions, self._unreadable)
        state = folder / "worker"
        first_rank = 0 if self._task.node_rank == 0 else None
        writers = Writers(state / "writers.json", RanksOfProcesses(folder / PROBE_FOLDER).of, first_rank)
        self._events = EventFiles(
            self._mirror.event_files, self._points_offset_of, state / "main-writer", self._omissions, writers
        )
        loggers = LoggerFiles(folder, self._points_offset_of)
        self._printed_logs = printed = PrintedLogs(
            self._mirror.logs, self._points_offset_of, state / "printed.json", mask=self._task.mask
        )
        probe = ProbeFiles(folder / PROBE_FOLDER, self._points_offset_of)
        hardware = HardwareFile(folder, self._points_offset_of)
        return (
            PointStream(
                lambda final: chain(self._events.sources(final), loggers.sources(final)), logged, are_many=True
            ),
            PointStream(printed.sources, uploader),
            PointStream(probe.sources, uploader, have_own_series=True),
            PointStream(hardware.sources, uploader),
        )

    def _refusal_findings(self) -> list[Finding]:
        refusals = [*self._mirror.refusals(), *self.checkpoints.refusals]
        refused = [Finding(kind=REFUSED, evidence=text, meaning=REFUSED_MEANS, fix=REFUSED_FIX) for text in refusals]
        lost = [Finding(kind=LOST, evidence=text, meaning=LOST_MEANS, fix=LOST_FIX) for text in self._mirror.losses()]
        unread = [] if self._names.has_others("") else self._printed_logs.findings()
        return refused + lost + self._unreadable.findings() + unread + self._left_out_findings()

    def _left_out_findings(self) -> list[Finding]:
        mirror = self._mirror
        return [*self._limit.findings(), *left_out_findings(mirror.left_out, mirror.holes(), mirror.too_large)]

    def _store_points(self, batch: PointBatch) -> Sending[int]:
        return (yield from self._store(self._limit.keep(batch)))

    def _store(self, batch: PointBatch) -> Sending[int]:
        offset = yield from sent(points_piece(self._task, batch))
        if batch.series and batch.source in SCRIPT_KINDS:
            self._note_points()
        self.reporter.take_points(batch.series, batch.source)
        return offset

    def _note_points(self) -> None:
        """Tell the supervisor that the script reports figures; a full disk only delays that."""
        if not self._has_points:
            with suppress(OSError):
                self._points_file.parent.mkdir(exist_ok=True)
                self._points_file.touch()
                self._has_points = True

    def _store_logged(self, batch: PointBatch) -> Sending[int]:
        """Store points of event files or of the probe, whose names are theirs."""
        batch, self.points_sent_at = self._limit.keep(batch), self._clock.now()
        offset = yield from self._store(batch)
        self._names.stored(batch)
        return offset

    def _points_offset_of(self, path: str, generation: int) -> int:
        return self._offsets(path, generation).points_offset

    def _bytes_of(self, path: str, generation: int) -> int:
        return self._offsets(path, generation).offset

    def _offsets(self, path: str, generation: int) -> FileOffsets:
        """Ask how far the server has a file; of an attempt that no earlier worker sent, it has nothing.

        Else thousands of files took as many requests. The answer to the first bytes tells what it has after all."""
        if not self._mirror.is_continued:
            return FileOffsets(offset=0)
        return self._client.file_offsets(self._task, path, generation)

    def _append(self, path: str, generation: int, offset: int, data: bytes) -> Sending[int]:
        return sent(bytes_piece(self._task, path, generation, offset, data))


UNWATCHED_EVERY_S = 5.0
POINTS_WATCHED_EVERY_S = 0.0
"""At every look."""
MIRROR_WATCHED_EVERY_S = PRINTED_WATCHED_EVERY_S = 0.25
PROBE_WATCHED_EVERY_S = 1.0
MIRROR = "copies of files"
SHARED_NAMES_FILE = "worker/loggers.json"
SERIES_FILE = "worker/series.jsonl"
REFUSED = "not copied"
REFUSED_MEANS = "The server, or a proxy in front of it, refuses the file. It stays on its node."
REFUSED_FIX = "See the reason; for a proxy, raise the limit (nginx: client_max_body_size 0)."
LOST = "not read"
LOST_MEANS = "It was cut, replaced, deleted or closed to the worker before all of it was sent."
LOST_FIX = "Keep a run's files as they are until everything is sent. What is left of it is on its node."


@dataclass
class _Schedule:
    """When a stream is uploaded next: often while somebody watches, rarely otherwise."""

    watched_every_s: float
    last_at: float = float("-inf")

    def is_due(self, now: float, watched: bool) -> bool:
        return now - self.last_at >= (self.watched_every_s if watched else UNWATCHED_EVERY_S)

    def take(self, now: float, watched: bool, step: Callable[[], Sending[bool]]) -> Sending[bool]:
        """Run the step if it is due; True if more is waiting, which keeps it due."""
        if not self.is_due(now, watched):
            return False
        more = yield from step()
        if not more:
            self.last_at = now
        return more


def _is_mapped_by(label: str, node_rank: int) -> Callable[[Path], bool]:
    """A function telling whether a process of the attempt RUN/N can write to a file through an open mmap."""
    run_id, _, attempt = label.partition("/")
    return lambda path: processes.have_mapped(processes.of_attempt(run_id, int(attempt), node_rank), path)
