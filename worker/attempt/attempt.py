"""One attempt on this node: starts it once, follows it, carries what it writes, and reports its end."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from domain.messages import CheckpointFetch, Reason, TaskReport
from domain.spec import Assignment
from worker.attempt import supervision
from worker.attempt.ending import SHUTDOWN_MESSAGE, Shutdown, end_of
from worker.attempt.orphans import Orphans
from worker.attempt.reports import report_of_life, send_report
from worker.attempt.slurm_job import at_time_limit
from worker.attempt.supervision import Background, Spawn, SupervisorProcess
from worker.attempt.uploader import Courier
from worker.launch.fetching import Fetching
from worker.launch.preparation import CannotStart, LocalNode, prepare
from worker.monitor.watch import HUNG_FILE, with_hang_reason
from worker.node import processes
from worker.node.attempt_files import LAUNCH_FILE, STATE_FILE, STOP_FILE
from worker.node.processes import Process
from worker.node.state_files import (
    END_FILE,
    REPORTED_FILE,
    SETTLED,
    SUPERSEDED,
    read_object,
    read_report,
    write_whole,
)
from worker.preflight.rendezvous import Meeting, may_prepare
from worker.session.answers import Adoption
from worker.session.client import Client, TaskRef
from worker.session.failures import AttemptSuperseded, RequestFailed, RequestRefused, ServerAway

log = logging.getLogger(__name__)
START_LIMIT_S = 15.0
"""A supervisor that has not said anything by then is started again."""
STARTS = 3
LIFE = ("", "starting", "running", "stopping")


class LocalAttempt:
    """What is on this node's disk and in its processes for one assignment."""

    def __init__(
        self,
        assignment: Assignment,
        folder: Path,
        node: LocalNode,
        client: Client,
        spawn: Spawn,
        background: Background,
    ) -> None:
        self.assignment, self.folder = assignment, folder
        self.part = TaskRef(assignment.fence, assignment.node_rank, assignment.label)
        self.label = f"{assignment.run_id}/{assignment.attempt}"
        self.is_superseded = False
        self._node, self._client, self._spawn, self._background = node, client, spawn, background
        self._meeting = Meeting(folder, node, client, self.part)
        self._state: dict[str, Any] = {}
        self._state_key: tuple[int, int] | None = None
        self._child: SupervisorProcess | None = None
        self._starts, self._started_at = 0, 0.0
        self._orphans = Orphans(assignment.run_id, assignment.attempt)
        self._stop_grace_s: float | None = None
        self._shutdown: Shutdown | None = None
        self._signalled = False
        self._end = read_report(folder / END_FILE)
        self._reported = str(read_object(folder / REPORTED_FILE).get("state", ""))
        self._preparing = self._to_confirm = self._data_refused = False
        self._opening = threading.Lock()
        self._opened: Courier | None = None

    # -- what is wished ------------------------------------------------------------------------

    @property
    def key(self) -> tuple[int, int]:
        """Names the attempt's part among all of this node's."""
        return self.part.fence, self.part.node_rank

    @property
    def is_over(self) -> bool:
        """No process is left (or ever was): only the report is missing."""
        return self._end is not None or self._state.get("state") == "ended"

    @property
    def is_settled(self) -> bool:
        """Nothing is left to do for this attempt."""
        has_child = self._child is not None and self._child.poll() is None
        return self.is_over and self._reported in SETTLED and not has_child

    def wish(self, assignment: Assignment) -> None:
        """The newest word of the server on this attempt."""
        self.assignment, self._to_confirm = self._meeting.hear(assignment), False
        if self._reported in SETTLED:
            self._reported = ""  # the list is a moment old, or the server has lost something: said again
        if assignment.action == "stop":
            self.stop(assignment.spec.stop_grace_s if assignment.grace_s is None else assignment.grace_s)

    def doubt(self) -> None:
        """The server's list lacks it. Lists may be late: it is asked before anything ends."""
        self._to_confirm = True

    def stop(self, grace_s: float) -> None:
        """End it, with so many seconds to save; a smaller number later hurries it."""
        self._stop_grace_s = grace_s if self._stop_grace_s is None else min(self._stop_grace_s, grace_s)

    def let_go(self) -> None:
        """Report nothing more of it; its data stays here."""
        self._remember(SUPERSEDED)

    def shut_down(self, grace_s: float, why: Shutdown = "worker") -> None:
        """End it because this worker ends."""
        self._shutdown = why
        self.stop(grace_s)

    # -- processes (no network) ----------------------------------------------------------------

    def act(self, now: float) -> None:
        """Start, stop, notice what became of the processes; never waits."""
        if self.is_over or self._is_moving():
            return
        self._read_state()
        if not self._state:
            self._begin(now)
        elif self._state["state"] == "ended":
            log.info("attempt %s ended (exit code %s)", self.label, self._state["exit_code"])
        elif supervision.is_supervised(self._state):
            self._pass_on_stop()
        else:
            self._follow_up_lost_supervisor(now)

    def _read_state(self) -> None:
        path = self.folder / STATE_FILE
        try:
            status = path.stat()
            if (status.st_ino, status.st_mtime_ns) == self._state_key:
                return
            self._state = json.loads(path.read_text())
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
            return  # it is about to write its first state
        if self._has_supervisor() or supervision.was_started(self.folder):
            self._take_up(now)
        elif self._stop_grace_s is not None:
            if not self._preparing:
                self._conclude(TaskReport(state="stopped", message=self._stop_message("before it started")))
        elif self._preparing or not may_prepare(self.assignment, self.folder):
            return
        elif not (self.folder / LAUNCH_FILE).exists() or self._meeting.must_look(self.assignment):
            self._preparing = True
            self._background(self._prepare)
        elif not self.assignment.may_start:
            return
        elif self._starts == STARTS:
            text = "The program that looks after a run's processes could not be started on this node."
            self._conclude(TaskReport(state="failed", reason=Reason.LAUNCH_FAILED, message=text))
        else:
            self._meeting.leave()
            self._starts, self._started_at = self._starts + 1, now
            self._child = self._spawn(self.folder, self.assignment.run_id, self.assignment.attempt)
            log.info("attempt %s started (pid %d)", self.label, self._child.pid)

    def _is_moving(self) -> bool:
        """Before there are ranks, a run on several nodes may have to meet at another port, and start over."""
        if self._stop_grace_s is not None or self._state.get("running_at") is not None:
            return False
        if (step := self._meeting.follow(self.assignment, self._has_supervisor)) == "start over":
            log.info("attempt %s starts over: its nodes could not meet at their port", self.label)
            self.assignment = self._meeting.hear(self.assignment)
            self._state, self._state_key, self._reported, self._child, self._starts = {}, None, "", None, 0
        return step != "go on"

    def _has_supervisor(self) -> bool:
        return supervision.holds_lock(self.folder)

    def _take_up(self, now: float) -> None:
        """Follow what was started before and did not write it down, or see that it is ended."""
        if self._find_supervisor() or self._has_supervisor():
            return
        self._read_state()  # its last word may have come a moment ago
        if not self._state and (end := supervision.end_of_unwritten(self._orphans, now)):
            self._conclude(end)

    def _find_supervisor(self) -> bool:
        found = supervision.state_of(self.folder, self.label)
        self._state = found or self._state
        return bool(found)

    def _prepare(self) -> None:
        """Runs in a thread of its own: a checkpoint may have to come a long way."""
        try:
            self._meeting.look(assignment := self.assignment)
            fetching = Fetching(self._client, self.label, self._is_stopped, self._tell_of_fetch)
            prepare(assignment, self.folder, self._node, fetching.checkpoint, fetching.code)
            self._meeting.prepared(assignment)
        except CannotStart as error:
            if self._stop_grace_s is None:
                self._conclude(self._meeting.cannot_start(error.reason, str(error)))
        except Exception as error:  # also a mistake of ours: a run must not be "starting" for ever
            log.exception("attempt %s could not be made ready", self.label)
            text = f"The run's directory could not be made ready: {error or type(error).__name__}"
            self._conclude(self._meeting.cannot_start(Reason.LAUNCH_FAILED, text))
        finally:
            self._preparing = False

    def _is_stopped(self) -> bool:
        return self._stop_grace_s is not None

    def _tell_of_fetch(self, fetch: CheckpointFetch) -> None:
        with suppress(
            ServerAway, RequestRefused, AttemptSuperseded
        ):  # the next one says more, and others draw conclusions
            self._client.report(self.part, TaskReport(state="starting", fetching=fetch))

    def _pass_on_stop(self) -> None:
        if self._stop_grace_s is None:
            return
        path, text = self.folder / STOP_FILE, f"{self._stop_grace_s:g}"
        with suppress(OSError):
            if path.read_text() == text:
                return
        log.info("attempt %s is told to stop within %s s", self.label, text)
        try:
            write_whole(path, text)
        except OSError:  # a full disk; a second signal would kill, so it is sent for that alone
            if not self._signalled or self._stop_grace_s == 0:
                self._signalled = True
                supervisor = Process(self._state["pid"], self._state["start_ticks"])
                processes.send_signal(supervisor, signal.SIGTERM)

    def _follow_up_lost_supervisor(self, now: float) -> None:
        self._state_key = None
        self._read_state()
        if self._state["state"] == "ended":
            return  # it ended between two looks
        if self._state["boot_id"] != processes.boot_id():
            self._conclude(supervision.end_by_restart())
        elif self._orphans.end(now):
            if self._state["stop_requested_at"] is not None:
                self._conclude(TaskReport(state="stopped", message=self._stop_message("")))
            else:
                self._conclude(supervision.end_without_supervisor(self.folder))

    def _stop_message(self, when: str) -> str | None:
        text = SHUTDOWN_MESSAGE if self._shutdown else ("it was stopped" if when else "")
        return f"{text} {when}".strip() or None

    def _conclude(self, end: TaskReport) -> None:
        """An end without a supervisor's word on it; remembered, because it may take long to be heard."""
        self._meeting.leave()
        with suppress(OSError):
            write_whole(self.folder / END_FILE, end.model_dump_json())
        self._end = end
        log.info("attempt %s ended (%s)", self.label, end.message or end.state)

    # -- the server ----------------------------------------------------------------------------

    def send(self, now: float, *, watched: bool) -> bool:
        """Report and carry over what is new; True when more is waiting. ServerAway goes through."""
        try:
            if self._to_confirm:
                self._report(self._reported_life() or "starting")
                self._to_confirm = False
            if not (self._state or self.is_over or self.is_superseded):
                self.assignment = self._meeting.speak(self.assignment)
            self._report_life()
            more = self._has_data() and self._carry(now, watched)
            self._end_when_hung()
            if self.is_over and not more and not (self._has_data() and not self._courier().is_done):
                self._report_end()
            return more
        except AttemptSuperseded as error:
            self._give_way(str(error))
            return False

    def take_checkpoints(self, now: float) -> None:
        """Copy finished checkpoints; runs in a thread of its own."""
        if self._has_data():
            self._courier().take_checkpoints(now, final=self.is_over)

    def send_checkpoints(self, adoption: Adoption | None, may_go_on: Callable[[], bool]) -> None:
        """Hand finished checkpoints over; runs in a thread of its own."""
        if self._has_data():
            with suppress(AttemptSuperseded):  # the main loop meets the same answer, and draws the conclusion
                self._courier().send_checkpoints(adoption, may_go_on)

    def _carry(self, now: float, watched: bool) -> bool:
        courier = self._courier()
        courier.teller.request_stacks(self.assignment.stacks_requested_at)
        return courier.carry_rest() if self.is_over else courier.carry(now, watched=watched)

    def _end_when_hung(self) -> None:
        """As the run's spec has it; what is written down here becomes the sentence of its end."""
        spec = self.assignment.spec
        if spec.on_hang == "report" or self.is_over or not self._has_data() or self._stop_grace_s is not None:
            return
        if sentence := self._courier().teller.hang:
            log.warning("attempt %s hangs and is ended: %s", self.label, sentence)
            write_whole(self.folder / HUNG_FILE, sentence)
            self.stop(spec.stop_grace_s)

    def _has_data(self) -> bool:
        """Something was started, and the server takes what it wrote."""
        return bool(self._state or supervision.was_started(self.folder)) and not self._data_refused

    def _courier(self) -> Courier:
        with self._opening:
            if self._opened is None:
                self._opened = Courier(self.folder, self.assignment.spec, self._client, self.part, self.label)
            return self._opened

    def _report_life(self) -> None:
        """starting, running, stopping: in this order, each once, as far as it got."""
        if not self._state or self.is_superseded:
            return
        reached = ["starting"]
        if self._state["running_at"] is not None:
            reached.append("running")
        if self._state["state"] == "stopping":
            reached.append("stopping")
        last = LIFE.index(self._reported) if self._reported in LIFE else len(LIFE)
        for state in reached:
            if LIFE.index(state) > last:
                self._report(state)
                self._remember(state)

    def _report(self, state: str) -> None:
        send_report(self._client, self.part, report_of_life(self.folder, state, self._state.get("pid")))

    def _reported_life(self) -> str:
        return self._reported if self._reported in LIFE else ""

    def _report_end(self) -> None:
        end = self._end
        if end is None:
            launch = read_object(self.folder / LAUNCH_FILE)
            node = self._node.name
            end = end_of(self.folder, self._state, launch, node, self.part.node_rank, bool(self._shutdown))
            end = with_hang_reason(end, self.folder)
        if self.is_superseded:
            with suppress(AttemptSuperseded):  # a server that had given this node up waits for the proof
                send_report(self._client, self.part, end)
            self._remember(SUPERSEDED)
            return
        if self.assignment.action == "run" and self._shutdown == "slurm" and end.state != "succeeded":
            self._remember(SUPERSEDED)  # why it ends a job is Slurm's to say, and its gateway's to tell
            return
        if self.assignment.action == "run" and self._shutdown == "time limit" and end.state == "stopped":
            end = at_time_limit(end)
        send_report(self._client, self.part, end)
        self._remember(end.state)
        log.info("attempt %s is %s%s", self.label, end.state, f": {end.message}" if end.message else "")

    def _give_way(self, why: str) -> None:
        """End what a newer attempt has replaced. Its late logs and points are still carried, while taken."""
        if self.is_superseded:
            self._data_refused = True
            if self.is_over:
                self._remember(SUPERSEDED)
            return
        try:
            self._report(self._reported_life() or "starting")
        except AttemptSuperseded:
            log.info("attempt %s is superseded: %s", self.label, why)
            self.is_superseded = True
            self.stop(self.assignment.spec.stop_grace_s)
            return
        raise RequestFailed(why)  # only its data was refused: nothing to end a training for

    def _remember(self, state: str) -> None:
        self._reported = state
        with suppress(OSError):  # a full disk: it is said again after a restart, which does no harm
            write_whole(self.folder / REPORTED_FILE, json.dumps({"state": state}))
