"""Uploads one attempt's output: points first, then logs and event files, and checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from domain.assignments import Assignment
from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import SCRIPT_KINDS, Finding, PointBatch
from domain.spec import RunSpec
from worker.attempt.delivery import Remaining
from worker.attempt.supervision import processes_of
from worker.checkpoints.upload import CheckpointUploader
from worker.checkpoints.watching import CheckpointWatch, Unfinished, incomplete_findings
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
from worker.session.outbox import Outgoing, StreamStep
from worker.session.pieces import Piece, bytes_piece, points_piece
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
        self, folder: Path, spec: RunSpec, client: Client, task: TaskRef, label: str, clock: Clock = SYSTEM_CLOCK,
        checkpoints: CheckpointUploader | None = None,
    ) -> None:  # fmt: skip
        """`checkpoints`: those of an earlier uploader of the attempt, which it takes over."""
        self._client, self._task, self._label, self._clock = client, task, label, clock
        self._points_file, self._has_points = folder / POINTS_FILE, False
        roots = [folder / "work"] + ([Path(spec.workdir)] if spec.workdir else [])
        ignore = existing_files(folder / EXISTING_FILE)
        self._mirror = FileMirror(
            folder, roots, self._bytes_of, partial(bytes_piece, task), ignore=ignore, step_bytes=MIRROR_STEP_BYTES,
            most=client.body_limit.most, mask=task.mask, clock=clock,
        )  # fmt: skip
        self._omissions, self._unreadable = Omissions(folder), Unreadable(clock)
        self._limit = SeriesLimit(folder / SERIES_FILE)
        self.reporter = FindingsReporter(folder, spec, client, task, label, self._omissions, clock)
        self._profiles = ProfileReporter(folder, client, task, label)
        self._names = SharedNames(folder / SHARED_NAMES_FILE, lambda: bool(self._mirror.event_files()), clock)
        self._copied = _Stream(MIRROR, lambda now, _: self._mirror.step(now), MIRROR_WATCHED_EVERY_S)
        self._logged, *self._others = self._point_streams(folder)
        self._logger_stores = LoggerStores(
            folder, roots, self._points_offset_of, self._names, self._events.hyperparameters, self._omissions, clock
        )
        uploader = PointUploader(self._piece_of, self._omissions, self._unreadable, self._take_stored)
        self._stores = PointStream(self._logger_stores.sources, uploader)
        self._compared = _Stream("loggers", self._step_of_stores, PROBE_WATCHED_EVERY_S)
        self._findings = _Stream("findings", lambda now, _: _act(partial(self.reporter.step, now)))
        self._profiled = _Stream("profiles", lambda now, _: _act(self._profiles.step))
        if checkpoints is None:
            watch = CheckpointWatch(
                roots, folder / "outbox", ignore=ignore, is_mapped=_is_mapped_by(folder, label, task.node_rank),
                world_size=spec.world_size, clock=clock,
            )  # fmt: skip
            checkpoints = CheckpointUploader(watch, client, task, label, clock)
        self.checkpoints = checkpoints
        self.reporter.refused_data = self._refusal_findings
        self._waiting = set[str]()
        """Names of the streams that have more to send."""
        self.points_sent_at = float("-inf")
        """When points of the script were last sent, in seconds of the clock's `now`."""
        self._began_at = float("inf")
        self._has_points_left = True
        """After the end: whether points are still to be sent."""
        self._has_final_findings = False
        """Whether the final findings, with the outcome of every checkpoint, have been queued for the server."""
        self._unfinished: list[Unfinished] = []
        """The checkpoints that could not be copied, as of the last final findings."""
        self._findings_of: tuple[bool, bool] | None = None
        """Whether, at the last final findings, all checkpoints were copied and had their outcome."""

    def request(self, assignment: Assignment) -> None:
        """Pass on the requests that came with the assignment."""
        self._printed_logs.use(assignment.spec.printed_pattern)
        self.reporter.request_stacks(assignment.stacks_requested_at)
        self._profiles.request(assignment.profile)

    def upload(self, now: float, *, watched: bool) -> Iterator[Iterable[Outgoing]]:
        """Yield what is due, group by group; `has_more` is valid then."""
        watched = watched or self._profiles.is_pending or self._awaits_first_points(now)
        self._waiting = set()
        streams = (self._logged, self._copied, *self._others)
        yield self._steps([stream for stream in streams if stream.is_due(now, watched)], now)
        if self._compared.is_due(now, watched):  # with the names of others
            yield self._steps([self._compared], now)
        yield self._steps([self._findings, self._profiled], now)

    def _awaits_first_points(self, now: float) -> bool:
        """Whether the script has logged nothing yet and may soon: nobody waits longer for a curve to begin."""
        self._began_at = min(self._began_at, now)
        return self.points_sent_at == float("-inf") and now - self._began_at < FIRST_POINTS_WITHIN_S

    def upload_remaining(self) -> Iterator[Iterable[Outgoing]]:
        """Yield everything after the end, due or not; `has_more` is valid then.

        The mirror begins: a restarted worker may find an event file that was uploaded before, but not all of its
        points."""
        self._mirror.finish()
        now, self._waiting = float("inf"), set()
        yield self._steps([self._copied, self._logged, *self._others], now, final=True)
        if LOGGED not in self._waiting and not self._unreadable.has_failed(LOGGED):
            yield self._steps([self._compared], now, final=True)
        yield self._steps([self._profiled], now)
        has_points = bool(self._waiting - {MIRROR, self._profiled.name})
        self._has_points_left = has_points or (MIRROR in self._waiting and self._mirror.has_more_files)
        if not (self.has_more or self._unreadable.may_recover or self._has_final_findings):
            self._finish_findings(self.checkpoints.all_taken, self.checkpoints.is_done)

    @property
    def has_more(self) -> bool:
        """Whether more is waiting than what was yielded last."""
        return bool(self._waiting)

    def _steps(self, streams: Iterable[_Stream], now: float, *, final: bool = False) -> Iterator[Outgoing]:
        """Yield the next step of each, except of those that could not be read a moment ago."""
        for stream in streams:
            if self._unreadable.is_due(stream.name):
                step = stream.step(now, final)
                step.conclude = partial(self._conclude, stream, step, now)
                yield step
            else:
                stream.last_at = now

    def _conclude(self, stream: _Stream, step: StreamStep, now: float, failure: Exception | None) -> None:
        """Note how a step ended: a stream that fails alone has nothing more to send."""
        self._waiting.add(stream.name)  # it stays there where the failure is raised
        if not (self._unreadable.judge(stream.name, failure) and step.has_more):
            self._waiting.remove(stream.name)
            stream.last_at = now

    def _finish_findings(self, all_taken: bool, is_done: bool) -> None:
        """Report the final findings when all checkpoints are copied, and again when each is stored or refused."""
        if self._findings_of != (all_taken, is_done):
            self._unfinished = self.checkpoints.unfinished() if all_taken else []
            self.reporter.finish(incomplete_findings(self._unfinished))
            self._findings_of = (all_taken, is_done)
        self._has_final_findings = is_done

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

    @property
    def leaves_data(self) -> bool:
        """Whether data of the ended attempt stays on this node only, though nothing more is sent; valid as above."""
        mirror, checkpoints = self._mirror, self.checkpoints
        unsent = [*mirror.refusals(), *mirror.losses(), *checkpoints.refusals, *self._unfinished]
        left_out = left_out_findings(mirror.left_out, mirror.holes(), mirror.too_large)
        return bool(unsent or left_out or self._unreadable.findings() or self._omissions.has_set_aside)

    def event_files(self) -> list[Path]:
        """The attempt's event files on this node. Raises OSError."""
        return self._mirror.found_event_files()

    def _step_of_stores(self, _now: float, final: bool) -> StreamStep:
        if not final:
            return self._stores.step()
        self._logger_stores.freeze()
        return StreamStep(self._last_of_stores)

    def _last_of_stores(self, step: StreamStep) -> Iterator[Iterable[Outgoing]]:
        """Compare loggers' files with all that others got, without waiting."""
        for final in (False, True):
            part = self._stores.step(final=final)
            yield [part]
            step.has_more = part.sent > 0 or part.has_more
            if step.has_more or step.has_failed:
                return

    def _point_streams(self, folder: Path) -> list[_Stream]:
        """Points of event files and other loggers, of printed lines, of the probe and of the hardware."""
        uploader = PointUploader(self._piece_of, self._omissions, self._unreadable, self._take_stored)
        logged = PointUploader(self._piece_of_logged, self._omissions, self._unreadable, self._take_logged)
        state, clock = folder / "worker", self._clock
        first_rank = 0 if self._task.node_rank == 0 else None
        rank_of = RanksOfProcesses(folder / PROBE_FOLDER).of
        writers = Writers(state / "writers.json", rank_of, first_rank, clock=clock, holders=processes.holders)
        self._events = EventFiles(
            self._mirror.event_files, self._points_offset_of, state / "main-writer", self._omissions, writers, clock
        )
        loggers = LoggerFiles(folder, self._points_offset_of)
        self._printed_logs = printed = PrintedLogs(
            self._mirror.logs, self._points_offset_of, state / "printed.json", clock, self._task.mask
        )
        probe = ProbeFiles(folder / PROBE_FOLDER, self._points_offset_of)
        hardware = HardwareFile(folder, self._points_offset_of)
        all_logged = PointStream(
            lambda final: chain(self._events.sources(final), loggers.sources(final)), logged, are_many=True
        )
        return [
            _of_points(LOGGED, all_logged, POINTS_WATCHED_EVERY_S),
            _of_points("printed lines", PointStream(printed.sources, uploader), PRINTED_WATCHED_EVERY_S),
            _of_points("probe's records", PointStream(probe.sources, uploader, have_own_series=True)),
            _of_points("hardware samples", PointStream(hardware.sources, uploader)),
        ]

    def _refusal_findings(self) -> list[Finding]:
        refusals = [*self._mirror.refusals(), *self.checkpoints.refusals]
        refused = [Finding(kind=REFUSED, evidence=text, meaning=REFUSED_MEANS, fix=REFUSED_FIX) for text in refusals]
        lost = [Finding(kind=LOST, evidence=text, meaning=LOST_MEANS, fix=LOST_FIX) for text in self._mirror.losses()]
        unread = [] if self._names.has_others("") else self._printed_logs.findings()
        return refused + lost + self._unreadable.findings() + unread + self._left_out_findings()

    def _left_out_findings(self) -> list[Finding]:
        mirror = self._mirror
        return [*self._limit.findings(), *left_out_findings(mirror.left_out, mirror.holes(), mirror.too_large)]

    def _piece_of(self, batch: PointBatch) -> Piece:
        return points_piece(self._task, self._limit.keep(batch))

    def _take_stored(self, batch: PointBatch) -> None:
        batch = self._limit.keep(batch)
        if batch.series and batch.source in SCRIPT_KINDS:
            self._note_points()
        self.reporter.take_points(batch.series, batch.source)

    def _note_points(self) -> None:
        """Tell the supervisor that the script reports figures; a full disk only delays that."""
        if not self._has_points:
            with suppress(OSError):
                self._points_file.parent.mkdir(exist_ok=True)
                self._points_file.touch()
                self._has_points = True

    def _piece_of_logged(self, batch: PointBatch) -> Piece:
        """A piece of event files or of the probe, whose names are theirs."""
        self.points_sent_at = self._clock.now()
        return points_piece(self._task, self._limit.keep(batch))

    def _take_logged(self, batch: PointBatch) -> None:
        self._take_stored(batch)
        self._names.stored(self._limit.keep(batch))

    def _points_offset_of(self, path: str, generation: int) -> int:
        return self._offsets(path, generation).points_offset

    def _bytes_of(self, path: str, generation: int) -> int:
        return self._offsets(path, generation).offset

    def _offsets(self, path: str, generation: int) -> FileOffsets:
        """Ask how far the server has a file; of an attempt that no earlier worker sent, it has nothing.

        Otherwise thousands of files take as many requests. The answer to the first bytes tells what it has."""
        if not self._mirror.is_continued:
            return FileOffsets(offset=0)
        return self._client.file_offsets(self._task, path, generation)


UNWATCHED_EVERY_S = 5.0
FIRST_POINTS_WITHIN_S = 60.0
POINTS_WATCHED_EVERY_S = 0.0
"""At every look."""
MIRROR_WATCHED_EVERY_S = PRINTED_WATCHED_EVERY_S = 0.25
PROBE_WATCHED_EVERY_S = 1.0
LOGGED, MIRROR = "event files", "copies of files"
SHARED_NAMES_FILE = "worker/loggers.json"
SERIES_FILE = "worker/series.jsonl"
REFUSED = "not copied"
REFUSED_MEANS = "The server, or a proxy in front of it, refuses the file. It stays on its node."
REFUSED_FIX = "See the reason; for a proxy, raise the limit (nginx: client_max_body_size 0)."
LOST = "not read"
LOST_MEANS = "It was truncated, replaced, deleted or made unreadable before all of it was sent."
LOST_FIX = "Keep a run's files as they are until everything is sent. What is left of it is on its node."


@dataclass
class _Stream:
    """A stream of an attempt, and when its next step is due: often while somebody watches, rarely otherwise."""

    name: str
    step: Callable[[float, bool], StreamStep]
    """(now, final) -> its next step."""
    watched_every_s: float = 0.0
    last_at: float = float("-inf")
    """When its last step left nothing; it stays due until one does."""

    def is_due(self, now: float, watched: bool) -> bool:
        return now - self.last_at >= (self.watched_every_s if watched else UNWATCHED_EVERY_S)


def _of_points(name: str, points: PointStream, watched_every_s: float = PROBE_WATCHED_EVERY_S) -> _Stream:
    return _Stream(name, lambda _, final: points.step(final=final), watched_every_s)


def _act(act: Callable[[], bool | None]) -> StreamStep:
    """Return a step that makes requests of its own, and has nothing to be sent."""
    return StreamStep(partial(_acting, act))


def _acting(act: Callable[[], bool | None], step: StreamStep) -> Iterator[Iterable[Outgoing]]:
    """Do what makes requests of its own, and yield nothing to be sent."""
    step.has_more = bool(act())
    yield ()


def _is_mapped_by(folder: Path, label: str, node_rank: int) -> Callable[[Path], bool]:
    """A function telling whether a process of the attempt RUN/N can write to a file through an open mmap."""
    run_id, _, attempt = label.partition("/")
    return lambda path: processes.have_mapped(processes_of(folder, run_id, int(attempt), node_rank), path)
