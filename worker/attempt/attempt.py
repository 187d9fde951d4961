"""Runs one attempt on this node: starts it once, follows it, uploads its output and reports its end."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.assignments import Assignment
from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import TERMINAL_STATES, Delivery, Reason, SeenRanks, TaskReport
from domain.text.json_values import parse_json
from worker.attempt import supervision
from worker.attempt.delivery import NOTHING, OpenDelivery, Remaining, not_sent
from worker.attempt.given_secrets import GivenSecrets, LeftFiles
from worker.attempt.reports import (
    SHUTDOWN_MESSAGE,
    Shutdown,
    bare_end,
    end_of,
    report_of_life,
    seen_ranks,
    send_report,
    with_desync,
)
from worker.attempt.slurm_job import at_time_limit
from worker.attempt.supervision import Background, Guest, Orphans, Spawn, SupervisorProcess
from worker.attempt.timeline import Timeline
from worker.attempt.uploader import AttemptUploader
from worker.checkpoints.upload import CheckpointUploader
from worker.hardware.holders import DeviceRelease
from worker.launch.preparation import LocalNode
from worker.monitor.watch import HUNG_FILE, with_hang_reason
from worker.node import processes
from worker.node.attempt_files import LAUNCH_FILE, STATE_FILE, STOP_FILE
from worker.node.process_table import ProcessTable
from worker.node.processes import Process
from worker.node.regular_files import bytes_of
from worker.node.state_files import (
    END_FILE,
    REPORTED_FILE,
    SETTLED,
    SUPERSEDED,
    read_object,
    read_report,
    write_whole,
)
from worker.preflight.rendezvous import Rendezvous, may_prepare
from worker.session.client import Client, TaskRef
from worker.session.failures import AttemptSuperseded, RequestFailed, RequestRefused, ServerAway
from worker.session.outbox import Outgoing

log = logging.getLogger(__name__)
TaskKey = tuple[int, int, str]
"""(fencing token, node rank, RUN/ATTEMPT): a restored store gives out numbers that its newer copy has given before."""


class LocalAttempt:
    """One assignment's files and processes on this node."""

    def __init__(
        self,
        assignment: Assignment,
        folder: Path,
        node: LocalNode,
        client: Client,
        spawn: Spawn,
        background: Background,
        clock: Clock = SYSTEM_CLOCK,
        table: ProcessTable = processes,
        guest: Guest | None = None,
    ) -> None:
        """`guest`: the rules where somebody else started its command, which is watched only."""
        self.assignment, self.folder, self._guest = assignment, folder, guest
        self._secrets = GivenSecrets(assignment)
        self.task = TaskRef(assignment.fence, assignment.node_rank, assignment.label, self._secrets.mask)
        self.label = f"{assignment.run_id}/{assignment.attempt}"
        self.is_superseded = False
        self._node, self.client, self._spawn, self._background = node, client, spawn, background
        self._clock, self._table = clock, table
        self._left_files = LeftFiles(folder, self._secrets.mask, background)
        self._rendezvous = Rendezvous(folder, node, client, self.task, clock)
        self._state: dict[str, Any] = {}
        self._state_key: tuple[int, int] | None = None
        self._child: SupervisorProcess | None = None
        self._starts, self._started_at = 0, 0.0
        self._timeline = Timeline(folder, has_preflight=assignment.spec.nodes > 1)
        self._orphans = Orphans(folder, assignment.run_id, assignment.attempt, assignment.node_rank, table, clock)
        waits_for_devices = assignment.device_kind == "cuda" and guest is None  # those of guests nobody waits for
        self._devices = DeviceRelease(assignment.devices if waits_for_devices else ())
        self._stop_grace_s: float | None = None
        self._shutdown: Shutdown | None = None
        self._signalled = False
        self._end = read_report(folder / END_FILE)
        reported = read_object(folder / REPORTED_FILE)
        self._reported = str(reported.get("state", ""))
        self._store = str(reported.get("store") or assignment.store)
        """The identity of the store that has what was reported."""
        self._delivery = OpenDelivery(is_reported=bool(reported.get("is_sending")))
        # An end that the server has had stays recorded, though an outdated list takes the attempt up once more.
        self._end_of_superseded = self._reported if self._reported in TERMINAL_STATES else SUPERSEDED
        self._reported_end: TaskReport | None = None
        self._preparing = self._to_confirm = self._data_refused = self._has_more = False
        self._uploader_lock = threading.Lock()
        self._open_uploader: AttemptUploader | None = None
        self._asks_again = False
        """Whether the next uploader asks anew what the server has."""
        self._seen: SeenRanks | None = None
        """The ranks that the server knows to be seen in a watched command."""

    # -- desired state -------------------------------------------------------------------------

    @property
    def key(self) -> TaskKey:
        """Identifies the task on this node."""
        return key_of(self.assignment)

    @property
    def is_over(self) -> bool:
        """Whether no process is left or ever existed; only the report is missing."""
        return self._end is not None or self._state.get("state") == "ended"

    @property
    def has_ranks(self) -> bool:
        """Whether its processes were started and have not ended, also where no step has noticed that yet."""
        return bool(self._state) and not self.is_over and supervision.is_supervised(self._state, self._table)

    @property
    def is_delivering(self) -> bool:
        """Whether its end is reported, and something is still to be sent."""
        return self._delivery.is_reported

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do for this attempt."""
        has_child = self._child is not None and self._child.poll() is None
        return self.is_over and self._reported in SETTLED and not (self._delivery.is_reported or has_child)

    def update(self, assignment: Assignment) -> None:
        """Take up the server's newest assignment of this attempt."""
        self.assignment, self._to_confirm = self._rendezvous.take_up(assignment), False
        self._secrets.take(assignment)
        if assignment.store not in ("", self._store):
            self._tell_again(assignment.store)
        if self._reported in SETTLED and not self._delivery.is_reported:
            self._reported = ""  # the list is outdated, or the server has lost the end: report it again
        if assignment.ends_delivery:
            self._end_delivery()
        if assignment.action == "stop":
            self.stop(assignment.spec.stop_grace_s if assignment.grace_s is None else assignment.grace_s)

    def _tell_again(self, store: str) -> None:
        """Report and offer everything anew: an older copy of the store may have taken its place, and lack the newest.

        What it does have it answers with its offsets, as after a restart of this worker; nothing arrives twice."""
        log.info("attempt %s: the store was replaced; what it lacks is sent again", self.label)
        self._store, self._reported = store, ""
        self._delivery = OpenDelivery(is_reported=False)
        self._timeline = Timeline(self.folder, has_preflight=self.assignment.spec.nodes > 1)
        self._asks_again = True

    def _end_delivery(self) -> None:
        """Send nothing more: what is not sent stays on this node."""
        self._delivery.is_ended = True
        if self._open_uploader is not None:
            self._open_uploader.checkpoints.end()

    def confirm_later(self) -> None:
        """Note that the server's list, perhaps an outdated one, lacks the attempt: ask before ending it."""
        self._to_confirm = True

    def stop(self, grace_s: float) -> None:
        """Stop it with `grace_s` seconds to save, if one may; a later, smaller number shortens them."""
        if self._guest is not None and self._guest.look_only:
            return
        self._stop_grace_s = grace_s if self._stop_grace_s is None else min(self._stop_grace_s, grace_s)

    def abandon(self) -> None:
        """Stop reporting the attempt; its data stays on this node."""
        if self._are_files_masked():
            self._record_reported(SUPERSEDED)

    def shut_down(self, grace_s: float, cause: Shutdown = "worker") -> None:
        """Stop it because this worker ends."""
        self._shutdown = cause
        self.stop(grace_s)

    # -- processes (no network) ----------------------------------------------------------------

    def act(self, now: float) -> None:
        """Start, stop and follow the processes; never blocks."""
        if self.is_over or self._is_moving():
            return
        self._read_state()
        if not self._state:
            self._begin(now)
        elif self._state["state"] == "ended":
            log.info("attempt %s ended (exit code %s)", self.label, self._state["exit_code"])
        elif supervision.is_supervised(self._state, self._table):
            self._pass_on_stop()
        else:
            self._follow_up_lost_supervisor(now)

    def _read_state(self) -> None:
        path = self.folder / STATE_FILE
        try:
            status = path.stat()
            if (status.st_ino, status.st_mtime_ns) == self._state_key:
                return
            self._state = parse_json(bytes_of(path))
            self._state_key = (status.st_ino, status.st_mtime_ns)
        except (OSError, ValueError):
            if supervision.UNWRITTEN in self._state:
                self._find_supervisor()
            return
        if self._child is None and not self._starts:
            self._starts = STARTS
            log.info("attempt %s found again (pid %d)", self.label, self._state["pid"])

    def _begin(self, now: float) -> None:
        if self._child is not None and self._child.poll() is None and now - self._started_at < START_LIMIT_S:
            return  # its first state is about to be written
        if self._guest or self._has_supervisor() or supervision.was_started(self.folder):
            self._follow_unwritten(now)
        elif self._stop_grace_s is not None:
            if not self._preparing:
                self._record_end(TaskReport(state="stopped", message=self._stop_message("before it started")))
        elif self._secrets.problem:
            self._record_end(self._secrets.failure())
        elif self._preparing or not (self._secrets.are_known and may_prepare(self.assignment, self.folder)):
            return
        elif not (self.folder / LAUNCH_FILE).exists() or self._rendezvous.needs_check(self.assignment):
            self._preparing = True
            self._background(self._prepare)
        elif not self.assignment.may_start:
            return
        elif self._starts == STARTS:
            text = "The supervisor of the run's processes could not be started on this node."
            self._record_end(TaskReport(state="failed", reason=Reason.LAUNCH_FAILED, message=text))
        else:
            self._start_supervisor(now)

    def _start_supervisor(self, now: float) -> None:
        self._rendezvous.close()
        run_id, number = self.assignment.run_id, self.assignment.attempt
        self._child = self._spawn(self.folder, run_id, number, self._secrets.values)
        if self._child is not None:  # else torch is about to be imported ahead
            self._starts, self._started_at = self._starts + 1, now
            log.info("attempt %s started (pid %d)", self.label, self._child.pid)

    def _is_moving(self) -> bool:
        """Whether the launcher must wait or start over because the rendezvous port changes; only before ranks exist."""
        if self._guest or self._stop_grace_s is not None or self._state.get("running_at") is not None:
            return False
        if (next_step := self._rendezvous.next_step(self.assignment, self._has_supervisor)) == "start over":
            log.info("attempt %s starts over: its nodes could not connect at their port", self.label)
            self.assignment = self._rendezvous.take_up(self.assignment)
            self._state, self._state_key, self._reported, self._child, self._starts = {}, None, "", None, 0
        return next_step != "go on"

    def _has_supervisor(self) -> bool:
        return supervision.holds_lock(self.folder, self._table)

    def _follow_unwritten(self, now: float) -> None:
        """Follow a supervisor that wrote no state, or conclude that the attempt has ended."""
        if self._find_supervisor() or self._has_supervisor():
            return
        self._read_state()  # it may have just written its last state
        if not self._state and (end := supervision.end_of_unwritten(self._orphans, now)):
            self._record_end(end)

    def _find_supervisor(self) -> bool:
        state = supervision.state_of(self.folder, self.label, self._table, self._clock)
        self._state = state or self._state
        return bool(state)

    def _prepare(self) -> None:
        """Prepare the attempt; runs in a thread of its own, because downloading a checkpoint may take long."""
        from worker.attempt.preparation import Preparation  # which those who only watch never need

        try:
            preparation = Preparation(self.folder, self._node, self.client, self.task, self._is_stopped, self._clock)
            if failure := preparation.prepare(self.assignment, self._rendezvous):
                self._record_end(failure)
        finally:
            self._preparing = False

    def _is_stopped(self) -> bool:
        return self._stop_grace_s is not None

    def _pass_on_stop(self) -> None:
        if self._stop_grace_s is None:
            return
        path, text = self.folder / STOP_FILE, f"{self._stop_grace_s:g}"
        with suppress(OSError):
            if bytes_of(path) == text.encode():
                return
        log.info("attempt %s is asked to stop within %s s", self.label, text)
        try:
            write_whole(path, text)
        except OSError:
            # A full disk; a second signal would kill at once, so only one is sent unless that is wanted.
            if not self._signalled or self._stop_grace_s == 0:
                self._signalled = True
                supervisor = Process(self._state["pid"], self._state["start_ticks"])
                self._table.send_signal(supervisor, signal.SIGTERM)

    def _follow_up_lost_supervisor(self, now: float) -> None:
        self._state_key = None
        self._read_state()
        if self._state["state"] == "ended":
            return  # it ended between the two checks
        if self._state["boot_id"] != self._table.boot_id():
            self._record_end(supervision.end_on_other_boot(self._guest))
        elif self._orphans.end(now):
            if self._state["stop_requested_at"] is not None:
                self._record_end(TaskReport(state="stopped", message=self._stop_message("")))
            else:
                self._record_end(supervision.end_without_supervisor(self.folder, self._guest))

    def _stop_message(self, when: str) -> str | None:
        text = SHUTDOWN_MESSAGE if self._shutdown else ("it was stopped" if when else "")
        return f"{text} {when}".strip() or None

    def _record_end(self, end: TaskReport) -> None:
        """Record an end that no supervisor recorded; on disk, because reporting it may take long."""
        self._rendezvous.close()
        end = self._secrets.masked(end)
        with suppress(OSError):
            write_whole(self.folder / END_FILE, end.model_dump_json())
        self._end = end
        log.info("attempt %s ended (%s)", self.label, end.message or end.state)

    # -- the server ----------------------------------------------------------------------------

    def send(self, now: float, *, watched: bool) -> Iterator[Iterable[Outgoing]]:
        """Report, and yield the new data to be sent, group by group; `conclude_sending` takes how that ended."""
        self._has_more = False
        if self._to_confirm:
            self._confirm(now)
            self._to_confirm = False
        if self._secrets.are_awaited and not self.is_superseded:
            return
        if not (self._state or self.is_over or self.is_superseded or self._guest):
            self.assignment = self._rendezvous.report(self.assignment)
        self._report_until_end(now)
        if self.is_over:
            yield from self._deliver(now)
            return
        if self._has_data():
            (uploader := self._uploader()).request(self.assignment)
            yield from uploader.upload(now, watched=watched)
            self._has_more = uploader.has_more
        self._end_when_hung()

    def conclude_sending(self, failure: Exception | None) -> bool:
        """Return whether more is waiting. Raises the failure that ended the sending, but for AttemptSuperseded."""
        if isinstance(failure, AttemptSuperseded):
            self._handle_superseded(str(failure))
            return False
        if failure is None:
            return self._has_more
        if self.is_over and isinstance(failure, ServerAway) and not isinstance(failure, RequestFailed):
            self._delivery.wait_again()
        raise failure

    def _report_until_end(self, now: float) -> None:
        """Report life and timeline; once the end is reported, the server takes neither any more."""
        if self._delivery.is_reported:
            return
        try:
            self._report_life()
            self._report_timeline(now)
            self._report_seen()
        except AttemptSuperseded:
            if not self.is_over:
                raise
            # An earlier worker may have reported the end, and was killed before it wrote that down: the end decides.

    def _confirm(self, now: float) -> None:
        """Ask about an attempt that the server's list lacks; raises AttemptSuperseded where it is gone."""
        if self._delivery.is_reported:
            self._report_end(now, is_sending=True)
        else:
            self._report(self._reported_life() or "starting")

    def _deliver(self, now: float) -> Iterator[Iterable[Outgoing]]:
        """Send what the ended attempt has not sent; report its end first where that takes more than a moment."""
        if self._delivery.is_due(now):
            self._report_end(now, is_sending=True)
        if self._has_data() and not self._delivery.is_ended:
            (uploader := self._uploader()).request(self.assignment)
            yield from uploader.upload_remaining()
            self._has_more = uploader.has_more
            if uploader.has_more or not uploader.is_complete:
                return
        self._report_end(now)

    @property
    def checkpoints(self) -> CheckpointUploader | None:
        """The uploader of its checkpoints, thread-safe; None before the start and once the server refuses its data."""
        return self._uploader().checkpoints if self._has_data() and not self._delivery.is_ended else None

    @property
    def points_sent_at(self) -> float:
        """When points of its script were last sent, in seconds of the clock's `now`."""
        return float("-inf") if self._open_uploader is None else self._open_uploader.points_sent_at

    def _end_when_hung(self) -> None:
        """End a hung attempt if its spec says so; the sentence stored here becomes the message of its end."""
        spec = self.assignment.spec
        if spec.on_hang == "report" or self.is_over or not self._has_data() or self._stop_grace_s is not None:
            return
        if sentence := self._uploader().reporter.hang:
            log.warning("attempt %s hangs and is ended: %s", self.label, sentence)
            write_whole(self.folder / HUNG_FILE, sentence)
            self.stop(spec.stop_grace_s)

    def _has_data(self) -> bool:
        """Whether the attempt was started, the server accepts its data, and its secrets in them can be masked."""
        is_sent = self._secrets.are_known and not self._data_refused
        return is_sent and bool(self._state or supervision.was_started(self.folder))

    def _uploader(self) -> AttemptUploader:
        with self._uploader_lock:
            if self._open_uploader is None or self._asks_again:
                # Its copies may be under way in another thread.
                checkpoints = self._open_uploader.checkpoints if self._open_uploader else None
                self._open_uploader = AttemptUploader(
                    self.folder, self.assignment.spec, self.client, self.task, self.label, self._clock, checkpoints
                )
                if self._asks_again:
                    self._open_uploader.checkpoints.offer_again()
                self._asks_again = False
            return self._open_uploader

    def _report_life(self) -> None:
        """Report the states starting, running and stopping in this order, each once."""
        if not self._state or self.is_superseded:
            return
        states = ["starting"]
        if self._state["running_at"] is not None:
            states.append("running")
        if self._state["state"] == "stopping":
            states.append("stopping")
        last_index = LIFE.index(self._reported) if self._reported in LIFE else len(LIFE)
        for state in states:
            if LIFE.index(state) > last_index:
                self._report(state)
                self._record_reported(state)

    def _report_timeline(self, now: float) -> None:
        """Report the phases of the start as they end; a server that refuses them goes without."""
        probe = self._uploader().reporter.probe if self._has_data() else None
        ends = self._timeline.news(now, probe, final=self.is_over)
        if ends and not self.is_superseded:
            report = {"state": self._reported_life() or "starting", "timeline": ends}
            with suppress(RequestRefused):
                self.client.report(self.task, TaskReport.model_validate(report))
            self._timeline.acknowledged(ends)

    def _report_seen(self) -> None:
        """Report the ranks of a command that somebody else started, as the probe sees them."""
        if self._guest is None or self.is_superseded or not self._has_data():
            return
        seen = seen_ranks(self._uploader().reporter.probe)
        if seen is not None and seen != self._seen:
            report = {"state": self._reported_life() or "starting", "seen": seen}
            with suppress(RequestRefused):
                self.client.report(self.task, TaskReport.model_validate(report))
            self._seen = seen

    def _report(self, state: str) -> None:
        send_report(self.client, self.task, report_of_life(self.folder, state, self._state.get("pid")))

    def _reported_life(self) -> str:
        return self._reported if self._reported in LIFE else ""

    def _report_end(self, now: float, *, is_sending: bool = False) -> None:
        """Report that no process is left; `is_sending`: and how much of its data is still to be sent."""
        held = self._devices.held(now)
        if held is None or not (is_sending or self._are_files_masked()):
            return
        self._reported_end = self._reported_end or self._end or self._explained_end()
        delivery = self._progress(now) if is_sending else None
        end = self._reported_end.model_copy(update={"held": held, "delivery": delivery})
        if self.is_superseded:
            with suppress(AttemptSuperseded):  # a server that considers this node lost waits for the proof
                send_report(self.client, self.task, end)
            if not is_sending:
                self._record_reported(self._end_of_superseded)
            return
        if self.assignment.action == "run" and self._shutdown == "slurm" and end.state != "succeeded":
            if not is_sending:
                self._record_reported(SUPERSEDED)  # the gateway reports why Slurm ends a job
            return
        if self.assignment.action == "run" and self._shutdown == "time limit" and end.state == "stopped":
            end = at_time_limit(end)
        self._send_end(end)

    def _send_end(self, end: TaskReport) -> None:
        was_reported = self._delivery.is_reported
        if was_reported and end.delivery is None:
            self._report_not_sent()
        send_report(self.client, self.task, end)
        is_cut = self._delivery.is_ended or not self._secrets.are_known
        has_all = not (is_cut or (self._has_data() and self._uploader().leaves_data))
        self._record_reported(end.state, is_sending=end.delivery is not None, has_all=has_all)
        if not was_reported:
            log.info("attempt %s is %s%s", self.label, end.state, f": {end.message}" if end.message else "")

    def _progress(self, now: float) -> Delivery:
        return self._delivery.message(self.remaining(), now)

    def remaining(self) -> Remaining:
        """Return how much of its data is sent after its end, and how much is not. Raises what the client raises."""
        return self._uploader().remaining() if self._has_data() else NOTHING

    def _report_not_sent(self) -> None:
        """Report what stays on the node where somebody ended the sending."""
        if self._delivery.is_ended and self._has_data():
            uploader = self._uploader()
            with suppress(RequestRefused, AttemptSuperseded):
                uploader.reporter.finish(not_sent(uploader.remaining(), self._node.name, self.folder))

    def _explained_end(self) -> TaskReport:
        """Return the end with its reason; only its bare state where its files confuse us, for it must be reported."""
        launch, node = read_object(self.folder / LAUNCH_FILE), self._node.name
        if not self._secrets.are_known:  # its logs may contain them
            return bare_end(self._state, self._secrets.problem or "its secrets are not known")
        try:
            end = end_of(self.folder, self._state, launch, node, self.task.node_rank, bool(self._shutdown))
            desync = self._uploader().reporter.desync if self._has_data() else None
            return self._secrets.masked(with_desync(with_hang_reason(end, self.folder), desync))
        except Exception as error:
            log.exception("attempt %s: its end cannot be explained", self.label)
            return bare_end(self._state, f"{type(error).__name__}: {error}")

    def _handle_superseded(self, message: str) -> None:
        """End an attempt that a newer one has replaced; its last logs and points are uploaded while accepted.

        Where its end was reported before, nothing more is sent."""
        if self._guest and self.is_over and self._is_end_taken():
            return
        if self._delivery.is_reported:
            log.info("attempt %s: the server wants no more of its data: %s", self.label, message)
            if self._delivery.is_ended and self._are_files_masked():
                self._record_reported(self._reported)
            self._end_delivery()
            return
        if self.is_superseded:
            self._data_refused = True
            if self.is_over and self._are_files_masked():
                self._record_reported(self._end_of_superseded)
            return
        try:
            self._report(self._reported_life() or "starting")
        except AttemptSuperseded:
            log.info("attempt %s is superseded: %s", self.label, message)
            self.is_superseded = True
            if self._guest is None:
                self.stop(self.assignment.spec.stop_grace_s)
            return
        raise RequestFailed(message)  # only its data was refused: no reason to end a training

    def _is_end_taken(self) -> bool:
        """Whether the server has its end, of which only the answer was lost: it takes the same report once more."""
        with suppress(AttemptSuperseded):
            self._report_end(self._clock.now())
        return self._reported in TERMINAL_STATES and not self._delivery.is_reported

    def _are_files_masked(self) -> bool:
        """Whether the files on this node are without the secrets, which the server gives until it has the end."""
        return self._left_files.are_masked(lambda: self._uploader().event_files())

    def _record_reported(self, state: str, *, is_sending: bool = False, has_all: bool = False) -> None:
        if (state, is_sending) == (self._reported, self._delivery.is_reported):
            return
        self._reported, self._delivery.is_reported = state, is_sending
        record = {"state": state, "store": self._store, "is_sending": is_sending, "has_all": has_all}
        with suppress(OSError):  # a full disk: it is reported again after a restart, which is harmless
            write_whole(self.folder / REPORTED_FILE, json.dumps({key: it for key, it in record.items() if it}))


START_LIMIT_S = 60.0
"""A supervisor that has not written its state by then is started again."""
STARTS = 3
LIFE = ("", "starting", "running", "stopping")


def key_of(assignment: Assignment) -> TaskKey:
    """Return what identifies an assignment's task on this node, whichever store it came from."""
    return assignment.fence, assignment.node_rank, f"{assignment.run_id}/{assignment.attempt}"
