"""Carries what one attempt writes to the server: points first, then logs and event files, and checkpoints."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from domain.messages import Finding, PointBatch
from domain.spec import RunSpec
from worker.checkpoints.findings import incomplete_findings
from worker.checkpoints.upload import Handover
from worker.checkpoints.watching import CheckpointWatch
from worker.monitor.probe_reader import FOLDER as PROBE_FOLDER
from worker.monitor.probe_reader import ProbeFiles
from worker.monitor.reporter import FindingsReporter
from worker.node import processes
from worker.node.attempt_files import EXISTING_FILE
from worker.node.run_files import Listing
from worker.session.answers import Adoption
from worker.session.client import Client, TaskRef
from worker.session.failures import ServerMistake
from worker.streams.mirror import FileMirror
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import STEP_BATCHES, PointStream, PointUploader
from worker.streams.points import EventFiles
from worker.streams.printed_source import PrintedLogs

log = logging.getLogger(__name__)
UNWATCHED_EVERY_S = 5.0
POINTS_WATCHED_EVERY_S = 0.05
MIRROR_WATCHED_EVERY_S = PRINTED_WATCHED_EVERY_S = 0.25
PROBE_WATCHED_EVERY_S = 1.0
REFUSED = "not copied"
REFUSED_MEANS = "The server, or a proxy before it, takes none of it. The file stays on its node."
REFUSED_MEND = "The reason says why; of a proxy raise the limit (nginx: client_max_body_size 0)."
MIRROR_STEP_BYTES = 2 * 1024 * 1024


class Courier:
    """One attempt's way to the server. `carry` runs in one thread, the checkpoints' two methods in others."""

    def __init__(self, folder: Path, spec: RunSpec, client: Client, part: TaskRef, label: str) -> None:
        self._client, self._part, self._label = client, part, label
        roots = [folder / "work"] + ([Path(spec.workdir)] if spec.workdir else [])
        ignore = _existing(folder / EXISTING_FILE)
        self._mirror = FileMirror(
            folder, roots, self._bytes_of, self._append, ignore=ignore, step_bytes=MIRROR_STEP_BYTES,
            most=client.body_limit.most,
        )  # fmt: skip
        self._omissions = Omissions(folder)
        self._points, self._printed, self._probe = self._point_streams(folder)
        self.teller = FindingsReporter(folder, spec, client, part, label, self._omissions)
        checkpoints = CheckpointWatch(roots, folder / "outbox", ignore=ignore, is_mapped=_is_mapped_by(label))
        self._handover = Handover(checkpoints, client, part, label)
        self.teller.refused_data = self._refused
        self._points_turn, self._mirror_turn = _Turn(POINTS_WATCHED_EVERY_S), _Turn(MIRROR_WATCHED_EVERY_S)
        self._printed_turn, self._probe_turn = _Turn(PRINTED_WATCHED_EVERY_S), _Turn(PROBE_WATCHED_EVERY_S)
        self._has_last_word = False
        """All that was found wrong has been told, with what became of every checkpoint."""

    def carry(self, now: float, *, watched: bool) -> bool:
        """Send what is new and due; True when more is waiting. What the server raises goes through.

        Where it makes a mistake with one stream, the others are carried first."""
        mirror, step_mirror = self._mirror_turn, lambda: self._mirror.step(now) >= MIRROR_STEP_BYTES
        return _each(
            lambda: self._carry_points(now, watched),
            lambda: mirror.take(now, watched, step_mirror),
            lambda: self._printed_turn.take(now, watched, lambda: self._printed.step() == STEP_BATCHES),
            lambda: self._probe_turn.take(now, watched, lambda: self._probe.step() == STEP_BATCHES),
            lambda: self.teller.step(now),
        )

    def carry_rest(self) -> bool:
        """After the end: everything, due or not; True when more is waiting.

        The mirror looks first: a restarted worker may find an event file here that it has sent before,
        but not all of its points.
        """
        more = _each(
            lambda: self._mirror.step(float("inf")) > 0,
            lambda: self._points.step(final=True) == STEP_BATCHES,
            lambda: self._printed.step(final=True) == STEP_BATCHES,
            lambda: self._probe.step(final=True) == STEP_BATCHES,
        )
        if not more and not self._has_last_word:
            taken = self._handover.all_taken
            self.teller.finish(incomplete_findings(self._handover.unfinished()) if taken else [])
            self._has_last_word = taken
        return more

    def take_checkpoints(self, now: float, *, final: bool) -> None:
        """Copy what is complete before it changes or goes."""
        self._handover.take(now, final=final)

    def send_checkpoints(self, adoption: Adoption | None, may_go_on: Callable[[], bool]) -> None:
        """Hand over what was taken."""
        self._handover.send(adoption, may_go_on)

    @property
    def is_done(self) -> bool:
        """After the end, when `carry_rest` had nothing more: nothing is left here that the server lacks."""
        return self._has_last_word and self._handover.is_done and self._mirror.pending_bytes() == 0

    def _point_streams(self, folder: Path) -> tuple[PointStream, PointStream, PointStream]:
        """Points of event files, of printed lines and of the probe."""
        uploader, state = PointUploader(self._store_points, self._omissions), folder / "worker"
        events = EventFiles(
            self._mirror.event_files, self._points_offset_of, state / "main-writer", self._omissions
        )
        printed = PrintedLogs(self._mirror.logs, self._points_offset_of, state / "printed.json")
        probe = ProbeFiles(folder / PROBE_FOLDER, self._points_offset_of)
        return (
            PointStream(events.sources, uploader),
            PointStream(printed.sources, uploader),
            PointStream(probe.sources, uploader),
        )

    def _refused(self) -> list[Finding]:
        said = [*self._mirror.refusals(), *self._handover.refusals]
        return [
            Finding(kind=REFUSED, evidence=text, meaning=REFUSED_MEANS, mend=REFUSED_MEND) for text in said
        ]

    def _carry_points(self, now: float, watched: bool) -> bool:
        if not self._points_turn.is_due(now, watched):
            return False
        sent = self._points.step()
        more = sent == STEP_BATCHES
        if not more and (sent or not watched):  # while watched, a point after a pause is not held back
            self._points_turn.had_at = now
        return more

    def _store_points(self, batch: PointBatch) -> int:
        offset = self._client.points(self._part, batch)
        self.teller.take_points(batch.series, batch.source)
        return offset

    def _points_offset_of(self, path: str, generation: int) -> int:
        return self._client.file_offsets(self._part, path, generation).points_offset

    def _bytes_of(self, path: str, generation: int) -> int:
        return self._client.file_offsets(self._part, path, generation).offset

    def _append(self, path: str, generation: int, offset: int, data: bytes) -> int:
        return self._client.append(self._part, path, generation, offset, data)


@dataclass
class _Turn:
    """When one kind of data is carried again: often while somebody watches, seldom otherwise."""

    watched_every_s: float
    had_at: float = float("-inf")

    def is_due(self, now: float, watched: bool) -> bool:
        return now - self.had_at >= (self.watched_every_s if watched else UNWATCHED_EVERY_S)

    def take(self, now: float, watched: bool, step: Callable[[], bool]) -> bool:
        """Step when it is due; True when more is waiting, and the turn goes on."""
        if not self.is_due(now, watched):
            return False
        more = step()
        if not more:
            self.had_at = now
        return more


def _each(*streams: Callable[[], bool | None]) -> bool:
    """True when one of them has more; the server's last mistake is raised when all had their turn."""
    more, mistake = False, None
    for step in streams:
        try:
            more = bool(step()) or more
        except ServerMistake as error:
            mistake = error
    if mistake is not None:
        raise mistake
    return more


def _is_mapped_by(label: str) -> Callable[[Path], bool]:
    """Whether a process of the attempt RUN/N can write to a file through an open mmap."""
    run_id, _, attempt = label.partition("/")
    return lambda path: processes.have_mapped(processes.of_attempt(run_id, int(attempt)), path)


def _existing(notes: Path) -> Listing:
    try:
        found: Listing = json.loads(notes.read_text())
    except (OSError, ValueError):
        return {}
    return found
