"""Reconciles this node's desired state with its files and processes."""

from __future__ import annotations

import errno
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from domain.assignments import Assignment, Resend
from domain.checkpoint_use.tasks import DesiredCheckpointTask
from domain.choices import RUN_ID
from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import HeldAttempt, Reason, TaskReport
from domain.text.paths import problem_in_words
from worker.attempt.attempt import LocalAttempt, TaskKey, key_of
from worker.attempt.reports import Shutdown
from worker.attempt.supervision import Background, Guest, Orphans, Spawn
from worker.checkpoints.upload import send_again
from worker.environments import folders
from worker.launch import compile_cache
from worker.launch.preparation import LocalNode
from worker.node import processes
from worker.node.attempt_files import ASSIGNMENT_FILE
from worker.node.process_table import ProcessTable
from worker.node.regular_files import bytes_of
from worker.node.state_files import END_FILE, is_settled, write_whole
from worker.session import outbox
from worker.session.answers import Adoption, DesiredState
from worker.session.bodies import MayContinue
from worker.session.client import Client, TaskRef
from worker.session.failures import AttemptSuperseded, RequestFailed, RequestRefused, ServerAway
from worker.session.outbox import Outbox
from worker.session.server_session import Backoff

log = logging.getLogger(__name__)
ClientOf = Callable[[Assignment | DesiredCheckpointTask | Resend], Client]
SHUTDOWN_GRACE_S = 15.0


class Daemon:
    """All attempts of one node. Its `step` is called repeatedly; nothing else touches processes."""

    def __init__(
        self,
        client: Client,
        node: LocalNode,
        spawn: Spawn,
        background: Background,
        client_of: ClientOf | None = None,
        clock: Clock = SYSTEM_CLOCK,
        table: ProcessTable = processes,
        guest: Guest | None = None,
    ) -> None:
        """`client_of`: the client for each attempt, where it is not the node's. `guest`: where others start commands
        and this node only watches them."""
        self._node, self._client_of = node, client_of or (lambda _: client)
        self._spawn, self._background = spawn, background
        self._clock, self._table, self._guest = clock, table, guest
        self._attempts: dict[TaskKey, LocalAttempt] = {}
        self._lost_attempts: dict[TaskKey, tuple[Assignment, Orphans]] = {}
        self._desired_state: DesiredState | None = None
        self._resends: list[Resend] = []
        """Checkpoints of ended attempts that the server asks for again."""
        self._labels_to_end: list[str] = []
        """Labels of attempts that the server does not know and a person asked to end."""
        self._lock = threading.Lock()
        self._backoff = Backoff()
        """Pauses while the server cannot be reached."""
        self._backoffs: dict[tuple[str, TaskKey], Backoff] = {}
        """Pauses for single activities of an attempt that fail."""
        self._has_more = False
        """Whether more is waiting to be sent."""
        self._turn = 0
        """The first of the ended attempts that have their turn."""
        self._resend_backoffs: dict[int, Backoff] = {}
        self._errors: dict[str, str] = {}
        self._shutdown_grace_s: float | None = None
        self._shutdown_cause: Shutdown = "worker"
        self.watched = False
        self.starts_new = True
        """False while the server has another protocol version: attempts continue, but none is started."""

    def recover_attempts(self) -> None:
        """Continue the attempts that an earlier worker on this data started and did not finish reporting."""
        for path in sorted((self._node.data_dir / "runs").glob(f"*/attempts/*/node*/{ASSIGNMENT_FILE}")):
            if is_settled(path.parent):
                continue
            if (assignment := _read_assignment(path.parent)) is not None:
                self._open_attempt(assignment)

    def set_desired_state(self, desired_state: DesiredState) -> None:
        """Replace the desired state; thread-safe."""
        with self._lock:
            self._desired_state, self.watched = desired_state, desired_state.watched

    def shut_down(self, grace_s: float = SHUTDOWN_GRACE_S, cause: Shutdown = "worker") -> None:
        """Stop every run of this node, with at most `grace_s` seconds each to save."""
        self._shutdown_grace_s, self._shutdown_cause = grace_s, cause

    @property
    def attempts(self) -> list[LocalAttempt]:
        """The attempts on this node, the oldest first."""
        return sorted(self._attempts.values(), key=lambda attempt: attempt.key)

    @property
    def points_sent_at(self) -> float:
        """When points of a script were last sent, in seconds of the clock's `now`."""
        return max((attempt.points_sent_at for attempt in self._attempts.values()), default=float("-inf"))

    @property
    def is_idle(self) -> bool:
        """Whether nothing of any attempt is to be done until the desired state changes."""
        return not (self._attempts or self._lost_attempts)

    @property
    def held_attempts(self) -> list[HeldAttempt]:
        """The attempts on this node that are not settled, for a server that may not know them."""
        return [_held_attempt(attempt) for attempt in self.attempts]

    @property
    def live_runs(self) -> set[str]:
        """The runs that may have processes on this node."""
        return {attempt.assignment.run_id for attempt in self.attempts if not attempt.is_over}

    @property
    def runs_in_use(self) -> set[str]:
        """The runs that something is to be done for here."""
        resends = [*self._resends, *(new.resends if (new := self._desired_state) else ())]
        return {one.run_id for one in self._assignments} | {one.run_id for one in resends}

    @property
    def workdirs(self) -> set[str]:
        """The folders in which attempts that are not settled run in place."""
        return {one.spec.workdir for one in self._assignments if one.spec.workdir}

    @property
    def _assignments(self) -> list[Assignment]:
        """Return the assignments of attempts that are not settled, or not begun yet; for any thread."""
        assignments = [*(new.assignments if (new := self._desired_state) else ())]
        assignments += [attempt.assignment for attempt in tuple(self._attempts.values())]
        return assignments + [assignment for assignment, _ in tuple(self._lost_attempts.values())]

    @property
    def has_ranks(self) -> bool:
        """Whether processes of an attempt run on this node."""
        return any(attempt.has_ranks for attempt in self.attempts)

    def step(self, now: float) -> bool:
        """Reconcile once: desired state, processes, reports. True if more is waiting to be sent."""
        self._apply_desired_state()
        for assignment, _ in tuple(self._lost_attempts.values()):
            self._open_attempt(assignment)
        if self._shutdown_grace_s is not None:
            for attempt in self.attempts:
                grace_s = min(self._shutdown_grace_s, attempt.assignment.spec.stop_grace_s)
                attempt.shut_down(grace_s, self._shutdown_cause)
        for attempt in self.attempts:
            if attempt.assignment.label in self._labels_to_end:
                attempt.stop(attempt.assignment.spec.stop_grace_s)
                if attempt.is_over:
                    with self._guarded("abandon", attempt):
                        attempt.abandon()
            with self._guarded("act", attempt):
                attempt.act(now)
        more = self._send(now) if self._backoff.is_due(now) else False
        for attempt in self.attempts:
            if attempt.is_settled:
                self._forget(attempt)
        return more

    def take_checkpoints(self, now: float) -> bool:
        """Copy checkpoints; runs in a thread of its own, because copying may take seconds. True if some wait to be
        sent."""
        has_copies = False
        for attempt in sorted(self.attempts, key=lambda attempt: attempt.is_over):
            with self._guarded("copy checkpoints", attempt):
                has_copies = _take_checkpoints(attempt, now) or has_copies
        return has_copies

    def send_checkpoints(self, adoption: Adoption | None, may_continue: MayContinue) -> None:
        """Upload checkpoints; runs in a thread of its own, because it may take hours. Passes ServerAway on, except for
        failures of single requests."""
        for attempt in self._due_attempts("upload checkpoints", self._clock.now()):
            with self._guarded("upload checkpoints", attempt):
                _send_checkpoints(attempt, adoption, partial(self._may_send_copies, attempt, may_continue))
        for resend in self._resends:
            self._send_again(resend, adoption, may_continue)

    def _may_send_copies(self, attempt: LocalAttempt, may_continue: MayContinue) -> bool:
        """Whether an attempt's copies may continue: those of an ended one yield to those of one that trains."""
        if not may_continue() or (attempt.is_over and attempt.checkpoints is None):
            return False
        return not (attempt.is_over and any(not one.is_over and _has_copies(one) for one in self.attempts))

    def _send_again(self, resend: Resend, adoption: Adoption | None, may_continue: MayContinue) -> None:
        """Send a checkpoint of an ended attempt again; one that fails is tried again with the next round."""
        subject = f"checkpoint {resend.path} of run {resend.run_id}, sent again"
        backoff = self._resend_backoffs.setdefault(resend.checkpoint_id, Backoff())
        if not backoff.is_due(began := self._clock.now()):
            return
        try:
            folder = self._folder_of(resend.run_id, resend.attempt, resend.node_rank)
            assignment, client = _read_assignment(folder), self._client_of(resend)
            keep_s = self._node.keep_attempts_s
            send_again(resend, assignment, folder, client, adoption, may_continue, self._clock, keep_s)
        except (RequestFailed, OSError, ValueError) as error:
            backoff.failed(now := self._clock.now(), now - began)
            self._log_error(subject, f"{subject}: {error}")
        else:
            backoff.failed(self._clock.now(), RESEND_PAUSE_S)  # until the next list of the server lacks it

    def _apply_desired_state(self) -> None:
        with self._lock:
            desired_state, self._desired_state = self._desired_state, None
        if desired_state is None:
            return
        self._labels_to_end = desired_state.end_unknown
        self._resends = desired_state.resends
        desired = {key_of(assignment): assignment for assignment in desired_state.assignments}
        self._lost_attempts = {key: lost for key, lost in self._lost_attempts.items() if key in desired}
        for key, assignment in desired.items():
            attempt = self._attempts.get(key)
            if attempt is not None and not attempt.assignment.is_of(assignment):
                self._report_failure(assignment, self._conflict_message(attempt.assignment))
                attempt.confirm_later()
                continue
            if attempt is None and self._shutdown_grace_s is None:
                attempt = self._open_attempt(assignment)
            if attempt is not None:
                attempt.update(assignment)
        for key, attempt in self._attempts.items():
            if key not in desired:
                attempt.confirm_later()

    def _open_attempt(self, assignment: Assignment) -> LocalAttempt | None:
        try:
            folder = self._folder(assignment)
            earlier = _read_assignment(folder)
            if earlier is not None and not earlier.is_of(assignment):
                if not is_settled(folder):
                    self._report_failure(assignment, self._conflict_message(earlier))
                    return None
                folder.rename(folder.with_name(f"earlier-{folder.name}-{earlier.fence}-{earlier.store}"))
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not (folder / ASSIGNMENT_FILE).exists():
                if assignment.is_known and not self._is_recorded_as_lost(assignment, folder):
                    return None
                if not (assignment.is_known or self.starts_new):
                    self._report_failure(assignment, f"Not started: {OTHER_VERSION}")
                    return None
                write_whole(folder / ASSIGNMENT_FILE, assignment.model_dump_json())
        except (OSError, ValueError) as error:
            self._log_error(
                assignment.run_id,
                f"the directory of run {assignment.run_id} cannot be created: {problem_in_words(error)}",
            )
            self._report_failure(
                assignment,
                f"The run's directory could not be created on node {self._node.name}: {problem_in_words(error)}",
                error,
            )
            return None
        if folder.is_symlink():  # of a watched command, whose processes know the folder by its own name
            folder = folder.readlink()
        client = self._client_of(assignment)
        attempt = LocalAttempt(
            assignment, folder, self._node, client, self._spawn, self._background, self._clock, self._table,
            self._guest,
        )  # fmt: skip
        self._attempts[attempt.key] = attempt
        return attempt

    def _conflict_message(self, earlier: Assignment) -> str:
        """The message for an attempt whose numbers a store and its older copy both gave out."""
        name = f"run {earlier.run_id}, attempt {earlier.attempt}"
        return (
            f"Node {self._node.name} still has {name}, started by a newer version of this store. End that "
            f"first: rankzero nodes end-unknown {self._node.name} {earlier.run_id}"
        )

    def _is_recorded_as_lost(self, assignment: Assignment, folder: Path) -> bool:
        """Record as lost an attempt that an earlier worker of this node started; False until its processes have ended.

        Starting it here would run it twice."""
        key = key_of(assignment)
        orphans = Orphans(folder, assignment.run_id, assignment.attempt, assignment.node_rank, self._table, self._clock)
        _, orphans = self._lost_attempts.setdefault(key, (assignment, orphans))
        if not orphans.end(self._clock.now()):
            return False
        text = f"Node {self._node.name} returned without the run: its worker now has another data directory."
        end = TaskReport(state="failed", reason=Reason.NODE_LOST, message=text)
        write_whole(folder / END_FILE, end.model_dump_json())
        del self._lost_attempts[key]
        return True

    def _report_failure(self, assignment: Assignment, text: str, error: Exception | None = None) -> None:
        """Report the failure of an attempt that has no directory, because nothing else will."""
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = Reason.DISK_FULL if is_full else Reason.LAUNCH_FAILED
        end = TaskReport(state="failed", reason=reason, message=text)
        with suppress(ServerAway, AttemptSuperseded, RequestRefused):  # the next poll repeats it
            task = TaskRef(assignment.fence, assignment.node_rank, assignment.label)
            self._client_of(assignment).report(task, end)

    def _folder(self, assignment: Assignment) -> Path:
        return self._folder_of(assignment.run_id, assignment.attempt, assignment.node_rank)

    def _folder_of(self, run_id: str, attempt: int, node_rank: int) -> Path:
        """Return an attempt's directory on this node. Raises ValueError for what is no run id."""
        if not re.fullmatch(RUN_ID, run_id):  # it becomes a path
            raise ValueError(f"{run_id!r} is not a run id")
        attempts = self._node.data_dir / "runs" / run_id / "attempts"
        return attempts / str(attempt) / f"node{node_rank}"

    def _send(self, now: float) -> bool:
        try:
            self._has_more = False
            for client, due in self._due_by_client(now):
                outbox.send(client, Outbox([self._sendings(due, now)]))
        except ServerAway as error:
            self._backoff.failed(now)
            self._log_error("server", f"the server does not answer, new data stays on this node: {error}")
            return False
        self._backoff.worked()
        if self._errors.pop("server", None):
            log.info("the server answers again")
        return self._has_more

    def _due_by_client(self, now: float) -> list[tuple[Client, list[LocalAttempt]]]:
        """The attempts that are to send, those with one client together."""
        due = dict[Client, list[LocalAttempt]]()
        for attempt in self._without_most_ended(self._due_attempts("send", now)):
            due.setdefault(attempt.client, []).append(attempt)
        return [*due.items()]

    def _without_most_ended(self, due: Sequence[LocalAttempt]) -> list[LocalAttempt]:
        """Leave out most of those that only deliver, which have their turns, so that others need not wait long."""
        ended = [attempt for attempt in due if attempt.is_delivering]
        if len(ended) <= ENDED_AT_ONCE:
            return [*due]
        self._turn = (self._turn + ENDED_AT_ONCE) % len(ended)
        chosen = (ended + ended)[self._turn : self._turn + ENDED_AT_ONCE]
        return [attempt for attempt in due if not attempt.is_delivering or attempt in chosen]

    def _sendings(self, due: Sequence[LocalAttempt], now: float) -> Iterator[Outbox]:
        """The data that each attempt sends; together they make one request."""
        began = self._clock.now()
        for attempt in due:
            yield Outbox(attempt.send(now, watched=self.watched), partial(self._conclude, attempt, self._clock.now()))
            if ("send", attempt.key) in self._backoffs and self._clock.now() - began >= LONGEST_ROUND_S:
                break

    def _conclude(self, attempt: LocalAttempt, began: float, failure: Exception | None) -> None:
        with self._guarded("send", attempt, began):
            self._has_more = attempt.conclude_sending(failure) or self._has_more

    def _due_attempts(self, activity: str, now: float) -> list[LocalAttempt]:
        """The attempts whose activity is due: those that train, then those that have ended; the failing ones last."""
        candidates = [(attempt, self._backoffs.get((activity, attempt.key))) for attempt in self.attempts]
        due = [(attempt, backoff) for attempt, backoff in candidates if backoff is None or backoff.is_due(now)]
        return [attempt for attempt, _ in sorted(due, key=lambda entry: (entry[1] is not None, entry[0].is_over))]

    @contextmanager
    def _guarded(self, activity: str, attempt: LocalAttempt, began: float | None = None) -> Iterator[None]:
        """Run an attempt's activity so that its failure (a full disk, a failing request) does not stop the others.

        `began`: when it began, if not now. Raises ServerAway."""
        subject, began = f"attempt {attempt.label}, {activity}", self._clock.now() if began is None else began
        try:
            yield
        except RequestFailed as error:
            text = f"{subject}: the server failed on it, new data stays on this node: {error}"
            self._failed(activity, attempt, began, text)
        except (OSError, RequestRefused) as error:
            self._failed(activity, attempt, began, f"{subject}: {problem_in_words(error)}")
        except ServerAway:
            raise
        except Exception as error:
            text = f"{subject}: internal error of the worker: {error!r}"
            self._failed(activity, attempt, began, text, is_internal=True)
        else:
            self._backoffs.pop((activity, attempt.key), None)
            if self._errors.pop(subject, None):
                log.info("%s: it works again", subject)

    def _failed(
        self, activity: str, attempt: LocalAttempt, began: float, text: str, *, is_internal: bool = False
    ) -> None:
        self._back_off(activity, attempt, began)
        self._log_error(f"attempt {attempt.label}, {activity}", text, is_internal)

    def _back_off(self, activity: str, attempt: LocalAttempt, began: float) -> None:
        backoff = self._backoffs.setdefault((activity, attempt.key), Backoff())
        now = self._clock.now()
        backoff.failed(now, now - began)

    def _forget(self, attempt: LocalAttempt) -> None:
        del self._attempts[attempt.key]
        if self._guest is None:  # a guest keeps nothing for other runs
            data = self._node.data_dir
            in_use = {compile_cache.folder_of(other.assignment.spec, data) for other in self.attempts}
            self._background(partial(compile_cache.drop_oldest, data, in_use))
            self._background(partial(folders.tidy, data))
        for activity, key in list(self._backoffs):
            if key == attempt.key:
                self._backoffs.pop((activity, key), None)

    def _log_error(self, subject: str, message: str, is_internal: bool = False) -> None:
        """Log an error once, not in every step; an internal error with its traceback."""
        if self._errors.get(subject) != message:
            self._errors[subject] = message
            log.warning("%s", message, exc_info=is_internal)


RESEND_PAUSE_S = 5.0
ENDED_AT_ONCE = 2
LONGEST_ROUND_S = 1.0
"""After a failure, the longest time for sending before the processes are handled again."""
OTHER_VERSION = "this node's worker and the dashboard are of different versions. Upgrade the older one."


def _take_checkpoints(attempt: LocalAttempt, now: float) -> bool:
    if (uploader := attempt.checkpoints) is None:
        return False
    uploader.take(now, final=attempt.is_over)
    return uploader.has_copies


def _has_copies(attempt: LocalAttempt) -> bool:
    return (uploader := attempt.checkpoints) is not None and uploader.has_copies


def _send_checkpoints(attempt: LocalAttempt, adoption: Adoption | None, may_continue: MayContinue) -> None:
    if (uploader := attempt.checkpoints) is not None:
        uploader.send(adoption, may_continue)


def _held_attempt(attempt: LocalAttempt) -> HeldAttempt:
    """The attempt on this node in a form that other stores understand."""
    assignment = attempt.assignment
    return HeldAttempt(
        run_id=assignment.run_id,
        attempt=assignment.attempt,
        fence=assignment.fence,
        node_rank=assignment.node_rank,
        uid=assignment.uid,
        store=assignment.store,
        devices=[] if attempt.is_over else assignment.devices,
        folder=str(attempt.folder),
    )


def _read_assignment(folder: Path) -> Assignment | None:
    """The assignment for which an attempt's directory was created; None if it is missing or unreadable."""
    path = folder / ASSIGNMENT_FILE
    try:
        return Assignment.model_validate_json(bytes_of(path), extra="ignore")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.error("%s cannot be read: %s", path, error)
        return None
