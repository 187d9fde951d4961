"""Reconciles what the server wishes for this node with what is on its disk and in its processes."""

from __future__ import annotations

import errno
import logging
import random
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from domain.messages import HeldAttempt, Reason, TaskReport
from domain.spec import RUN_ID, Assignment
from worker.attempt.attempt import LocalAttempt
from worker.attempt.ending import Shutdown
from worker.attempt.orphans import Orphans
from worker.attempt.supervision import Background, Spawn
from worker.launch.preparation import LocalNode
from worker.node.state_files import END_FILE, is_settled, write_whole
from worker.session.answers import Adoption, Wishes
from worker.session.client import Client, TaskRef
from worker.session.failures import AttemptSuperseded, RequestFailed, RequestRefused, ServerAway

log = logging.getLogger(__name__)
ASSIGNMENT_FILE = "assignment.json"
SHUTDOWN_GRACE_S = 15.0
LONGEST_PAUSE_S = 5.0
LONGEST_ROUND_S = 1.0
"""Once something failed, sending takes no longer before processes are looked after again."""
OTHER_VERSION = "this node's worker and the dashboard are of different versions. Upgrade the older one."


class Backoff:
    """When to ask an absent server again: later each time, never the same for two workers."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._until = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether enough time has passed."""
        return now >= self._until

    def failed(self, now: float, took_s: float = 0.0) -> float:
        """A try that took so long did not work; returns the seconds to wait, at least as many."""
        self._pause_s = min(LONGEST_PAUSE_S, max(0.2, self._pause_s * 2))
        wait_s = max(took_s, self._pause_s * random.uniform(0.5, 1.0))
        self._until = now + wait_s
        return wait_s

    def worked(self) -> None:
        """It answered."""
        self._pause_s, self._until = 0.0, float("-inf")


class Daemon:
    """All attempts of one node. `step` is called again and again; nothing else touches processes."""

    def __init__(self, client: Client, node: LocalNode, spawn: Spawn, background: Background) -> None:
        self._client, self._node = client, node
        self._spawn, self._background = spawn, background
        self._attempts: dict[tuple[int, int], LocalAttempt] = {}
        self._strays: dict[tuple[int, int], tuple[Assignment, Orphans]] = {}
        self._wishes: Wishes | None = None
        self._unwanted: list[str] = []
        """Labels of attempts that the server does not know and somebody wants ended."""
        self._lock = threading.Lock()
        self._backoff = Backoff()
        """Of a server that cannot be reached at all."""
        self._backoffs: dict[tuple[str, tuple[int, int]], Backoff] = {}
        """Of what alone fails of one attempt, by task."""
        self._troubles: dict[str, str] = {}
        self._shutdown_grace_s: float | None = None
        self._shutdown_why: Shutdown = "worker"
        self.watched = False
        self.starts_new = True
        """False while the server speaks another protocol: what trains goes on, nothing else is begun."""

    def find_attempts(self) -> None:
        """Take up again what an earlier worker on this data started and did not finish reporting."""
        for path in sorted((self._node.data_dir / "runs").glob(f"*/attempts/*/node*/{ASSIGNMENT_FILE}")):
            if is_settled(path.parent):
                continue
            if (assignment := _read_assignment(path.parent)) is not None:
                self._open(assignment)

    def take(self, wishes: Wishes) -> None:
        """The newest complete list; may be called from another thread."""
        with self._lock:
            self._wishes, self.watched = wishes, wishes.watched

    def shut_down(self, grace_s: float = SHUTDOWN_GRACE_S, why: Shutdown = "worker") -> None:
        """End every run of this node, with at most so many seconds to save each."""
        self._shutdown_grace_s, self._shutdown_why = grace_s, why

    @property
    def attempts(self) -> list[LocalAttempt]:
        """What this node has, the oldest first."""
        return sorted(self._attempts.values(), key=lambda attempt: attempt.key)

    @property
    def held(self) -> list[HeldAttempt]:
        """What this node has and has not settled, for a server that may not know of it."""
        return [_held(attempt) for attempt in self.attempts]

    def step(self, now: float) -> bool:
        """One turn: wishes, processes, reports. True when more is waiting to be sent."""
        self._take_up_wishes()
        for assignment, _ in tuple(self._strays.values()):
            self._open(assignment)
        if self._shutdown_grace_s is not None:
            for attempt in self.attempts:
                grace_s = min(self._shutdown_grace_s, attempt.assignment.spec.stop_grace_s)
                attempt.shut_down(grace_s, self._shutdown_why)
        for attempt in self.attempts:
            if attempt.assignment.label in self._unwanted:
                attempt.stop(attempt.assignment.spec.stop_grace_s)
                if attempt.is_over:
                    self._guard("let go", attempt, attempt.let_go)
            self._guard("act", attempt, partial(attempt.act, now))
        more = self._send(now) if self._backoff.is_due(now) else False
        for attempt in self.attempts:
            if attempt.is_settled:
                self._forget(attempt)
        return more

    def take_checkpoints(self, now: float) -> None:
        """Runs in a thread of its own: copying may take seconds."""
        for attempt in self.attempts:
            self._guard("take", attempt, partial(attempt.take_checkpoints, now))

    def send_checkpoints(self, adoption: Adoption | None, may_go_on: Callable[[], bool]) -> None:
        """Runs in a thread of its own: sending may take hours. ServerAway goes through, but an attempt's own."""
        for attempt in self._in_turn("hand over", time.monotonic()):
            self._guard("hand over", attempt, partial(attempt.send_checkpoints, adoption, may_go_on))

    def _take_up_wishes(self) -> None:
        with self._lock:
            wishes, self._wishes = self._wishes, None
        if wishes is None:
            return
        self._unwanted = wishes.end_unknown
        wished = {(one.fence, one.node_rank): one for one in wishes.assignments}
        self._strays = {key: stray for key, stray in self._strays.items() if key in wished}
        for key, assignment in wished.items():
            attempt = self._attempts.get(key)
            if attempt is not None and not attempt.assignment.is_of(assignment):
                self._refuse(assignment, self._occupied(attempt.assignment))
                attempt.doubt()
                continue
            if attempt is None and self._shutdown_grace_s is None:
                attempt = self._open(assignment)
            if attempt is not None:
                attempt.wish(assignment)
        for key, attempt in self._attempts.items():
            if key not in wished:
                attempt.doubt()

    def _open(self, assignment: Assignment) -> LocalAttempt | None:
        try:
            folder = self._folder(assignment)
            earlier = _read_assignment(folder)
            if earlier is not None and not earlier.is_of(assignment):
                if not is_settled(folder):
                    self._refuse(assignment, self._occupied(earlier))
                    return None
                folder.rename(folder.with_name(f"earlier-{folder.name}-{earlier.fence}-{earlier.store}"))
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not (folder / ASSIGNMENT_FILE).exists():
                if assignment.is_known and not self._is_gone(assignment, folder):
                    return None
                if not (assignment.is_known or self.starts_new):
                    self._refuse(assignment, f"Not started: {OTHER_VERSION}")
                    return None
                write_whole(folder / ASSIGNMENT_FILE, assignment.model_dump_json())
        except (OSError, ValueError) as error:
            self._tell(assignment.run_id, f"the directory of run {assignment.run_id} cannot be made: {error}")
            self._refuse(
                assignment, f"The run's directory could not be made on node {self._node.name}: {error}", error
            )
            return None
        attempt = LocalAttempt(assignment, folder, self._node, self._client, self._spawn, self._background)
        self._attempts[attempt.key] = attempt
        return attempt

    def _occupied(self, earlier: Assignment) -> str:
        """Two stores, one of them an older copy, may give the same numbers to two attempts."""
        name = f"run {earlier.run_id}, attempt {earlier.attempt}"
        return (
            f"Node {self._node.name} still has {name}, begun by a store that this one is an older copy of. End that "
            f"first: rankzero nodes end-unknown {self._node.name} {earlier.run_id}"
        )

    def _is_gone(self, assignment: Assignment, folder: Path) -> bool:
        """Whoever was this node before began it: to start it here would be a second one. What still runs of it on
        this machine is ended, then it is told as lost."""
        key = (assignment.fence, assignment.node_rank)
        _, orphans = self._strays.setdefault(
            key, (assignment, Orphans(assignment.run_id, assignment.attempt))
        )
        if not orphans.end(time.monotonic()):
            return False
        text = f"Node {self._node.name} came back without the run: its worker has another data directory now."
        end = TaskReport(state="failed", reason=Reason.NODE_LOST, message=text)
        write_whole(folder / END_FILE, end.model_dump_json())
        del self._strays[key]
        return True

    def _refuse(self, assignment: Assignment, text: str, error: Exception | None = None) -> None:
        """Where not even its directory is made, nobody else will report the attempt's end."""
        is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = Reason.DISK_FULL if is_full else Reason.LAUNCH_FAILED
        end = TaskReport(state="failed", reason=reason, message=text)
        with suppress(ServerAway, AttemptSuperseded, RequestRefused):  # the next list brings it here again
            self._client.report(TaskRef(assignment.fence, assignment.node_rank, assignment.label), end)

    def _folder(self, assignment: Assignment) -> Path:
        run_id = assignment.run_id
        if not re.fullmatch(RUN_ID, run_id):  # it becomes a path
            raise ValueError(f"{run_id!r} is not a run's id")
        attempts = self._node.data_dir / "runs" / run_id / "attempts"
        return attempts / str(assignment.attempt) / f"node{assignment.node_rank}"

    def _send(self, now: float) -> bool:
        more, began = False, time.monotonic()
        try:
            for attempt in self._in_turn("send", now):
                more |= self._guard("send", attempt, partial(attempt.send, now, watched=self.watched))
                if ("send", attempt.key) in self._backoffs and time.monotonic() - began >= LONGEST_ROUND_S:
                    break
        except ServerAway as error:
            self._backoff.failed(now)
            self._tell("server", f"the server does not answer, what is new is kept here: {error}")
            return False
        self._backoff.worked()
        if self._troubles.pop("server", None):
            log.info("the server answers again")
        return more

    def _in_turn(self, task: str, now: float) -> list[LocalAttempt]:
        """Those that are not held back, what failed last time behind all others."""
        tries = [(attempt, self._backoffs.get((task, attempt.key))) for attempt in self.attempts]
        due = [(attempt, backoff) for attempt, backoff in tries if backoff is None or backoff.is_due(now)]
        return [attempt for attempt, _ in sorted(due, key=lambda each: each[1] is not None)]

    def _guard(self, task: str, attempt: LocalAttempt, work: Callable[[], bool | None]) -> bool:
        """One attempt's trouble (a full disk, a request that the server fails at) must not stop the others."""
        subject, began = f"attempt {attempt.label}, {task}", time.monotonic()
        try:
            more = bool(work())
        except RequestFailed as error:
            self._hold_back(task, attempt, began)
            self._tell(subject, f"{subject}: the server failed at it, what is new is kept here: {error}")
            return False
        except (OSError, RequestRefused) as error:
            self._hold_back(task, attempt, began)
            self._tell(subject, f"{subject}: {error}")
            return False
        except ServerAway:
            raise
        except Exception as error:
            self._hold_back(task, attempt, began)
            self._tell(subject, f"{subject}: the worker made a mistake: {error!r}", is_mistake=True)
            return False
        self._backoffs.pop((task, attempt.key), None)
        if self._troubles.pop(subject, None):
            log.info("%s: it works again", subject)
        return more

    def _hold_back(self, task: str, attempt: LocalAttempt, began: float) -> None:
        backoff = self._backoffs.setdefault((task, attempt.key), Backoff())
        now = time.monotonic()
        backoff.failed(now, now - began)

    def _forget(self, attempt: LocalAttempt) -> None:
        del self._attempts[attempt.key]
        for task, key in list(self._backoffs):
            if key == attempt.key:
                self._backoffs.pop((task, key), None)

    def _tell(self, subject: str, trouble: str, is_mistake: bool = False) -> None:
        """Say a trouble once, not at every turn; a mistake of ours with its traceback."""
        if self._troubles.get(subject) != trouble:
            self._troubles[subject] = trouble
            log.warning("%s", trouble, exc_info=is_mistake)


def _held(attempt: LocalAttempt) -> HeldAttempt:
    """What this node has of it, in words that another store understands."""
    one = attempt.assignment
    return HeldAttempt(
        run_id=one.run_id,
        attempt=one.attempt,
        fence=one.fence,
        node_rank=one.node_rank,
        uid=one.uid,
        store=one.store,
        devices=[] if attempt.is_over else one.devices,
        folder=str(attempt.folder),
    )


def _read_assignment(folder: Path) -> Assignment | None:
    """The attempt that an attempt's directory was made for; None where there is none that can be read."""
    path = folder / ASSIGNMENT_FILE
    try:
        return Assignment.model_validate_json(path.read_bytes(), extra="ignore")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.error("%s cannot be read: %s", path, error)
        return None
