"""The attempts of one process: their daemon, and the loops that work on them, a thread each."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TypeAlias

from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import HeldAttempt
from worker.attempt.attempt import TaskKey
from worker.attempt.reports import Shutdown
from worker.attempt.supervision import Guest
from worker.checkpoint_tasks.program import RunProgram, run_program
from worker.checkpoint_tasks.tasks import NodeCheckpointTasks
from worker.hardware.faults import RecentFaults
from worker.hardware.sampler import EVERY_S, HardwareSampler, SampledAttempt
from worker.launch.preparation import LocalNode
from worker.launch.warm import Supervisors, default_launch
from worker.node import processes
from worker.node.hardware import IdleCores
from worker.node.process_table import ProcessTable
from worker.node.threads import start_thread
from worker.session.answers import Adoption, DesiredState
from worker.session.client import Client
from worker.session.failures import ServerAway
from worker.session.server_session import Backoff
from worker.trainings.daemon import SHUTDOWN_GRACE_S, ClientOf, Daemon
from worker.trainings.ended_attempts import FIRST_LOOK_S, LOOK_EVERY_S, EndedAttempt, EndedAttempts

log = logging.getLogger("worker")


class Trainings:
    """Everything that is done for attempts, and what is known of them."""

    def __init__(
        self,
        client: Client,
        node: LocalNode,
        *,
        is_warm: bool,
        imports_ahead: bool = True,
        faults: RecentFaults | None = None,
        client_of: ClientOf | None = None,
        on_step: Callable[[int], object] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
        supervisors: Supervisors | None = None,
        table: ProcessTable = processes,
        run_program: RunProgram = run_program,
        guest: Guest | None = None,
    ) -> None:
        """`imports_ahead`: import torch also before the first launch. `client_of`: the client for each attempt, where
        it is not `client`. `on_step` is called after each step, with `order` as it was before. `guest`: where others
        start commands and this node only watches them."""
        self._node, self._faults, self._on_step = node, faults, on_step
        self._imports_ahead, self._clock = imports_ahead, clock
        self._supervisors = supervisors or Supervisors(node.data_dir, is_warm=is_warm, clock=clock)
        self.daemon = Daemon(client, node, self._supervisors.spawn, self.in_background, client_of, clock, table, guest)
        self._checkpoint_tasks = NodeCheckpointTasks(
            node, client_of or (lambda _: client), lambda: self.adoption, run_program, clock
        )
        self.adoption: Adoption | None = None
        """Where snapshots are placed, if this process sees the server's disk."""
        self.order = 0
        """The number of the newest order that was taken up."""
        self._wake, self._closed, self._pauses = threading.Event(), threading.Event(), LoopPauses(clock)
        self._idle_cores, self._has_orders = IdleCores(), False
        self._has_stopped_stepping: threading.Event | None = None
        self._loops: list[threading.Event] = []
        """Each is set once its loop has ended."""

    @property
    def data(self) -> Path:
        """The data directory below which the attempts' folders lie."""
        return self._node.data_dir

    @property
    def unsettled(self) -> list[str]:
        """RUN/ATTEMPT of the attempts whose end the server does not have yet."""
        return [attempt.label for attempt in self.daemon.attempts]

    @property
    def training(self) -> list[str]:
        """RUN/ATTEMPT of those that may have processes."""
        return [attempt.label for attempt in self.daemon.attempts if not attempt.is_over]

    @property
    def held(self) -> list[HeldAttempt]:
        """The attempts on this node that are not settled, for a server that may not know them."""
        return self.daemon.held_attempts

    @property
    def live_runs(self) -> set[str]:
        """The runs that may have processes here."""
        return self.daemon.live_runs

    @property
    def has_ranks(self) -> bool:
        """Whether processes of an attempt run here."""
        return self.daemon.has_ranks

    @property
    def status(self) -> str:
        """Whether the next launch finds torch imported."""
        return self._supervisors.status

    def start(self) -> None:
        """Find what an earlier process left, and begin to work."""
        self.daemon.recover_attempts()
        loops = (self._take_checkpoints, self._send_checkpoints, self._sample_hardware, self._prepare_starts)
        self._loops = [start_thread(loop.__name__, loop, self._clock) for loop in loops]
        self._checkpoint_tasks.start()
        if (keep_s := self._node.keep_attempts_s) is not None:
            ended = EndedAttempts(self._node.data_dir, keep_s, self._is_in_use, self._clock)
            start_thread("ended attempts", partial(self._remove_ended, ended), self._clock)
        self._has_stopped_stepping = start_thread("steps", self._step, self._clock)

    def set_desired_state(self, desired: DesiredState, *, may_start: bool) -> None:
        """Take up the newest desired state; `may_start`: the server has the same protocol version."""
        self.daemon.starts_new = may_start
        self.daemon.set_desired_state(desired)
        self._has_orders = True
        self._checkpoint_tasks.set_desired(desired.checkpoint_tasks)
        self._wake.set()

    def shut_down(self, grace_s: float = SHUTDOWN_GRACE_S, cause: Shutdown = "worker") -> None:
        """Stop every run, with at most `grace_s` seconds each to save."""
        self.daemon.shut_down(grace_s, cause)
        self._wake.set()

    def close(self, limit_s: float) -> None:
        """End the loops; trainings continue. Waits for the current step, but not longer than that."""
        self._closed.set()
        self._checkpoint_tasks.close()
        self._supervisors.close()
        self._wake.set()
        if self._has_stopped_stepping is not None:
            self._clock.pause(limit_s, self._has_stopped_stepping)

    def end(self) -> None:
        """End the loops and wait for them, so that others may work on the same folders."""
        self.close(math.inf)
        for ended in self._loops:
            self._clock.wait(math.inf, ended)

    def wake(self) -> None:
        """End the current pause."""
        self._wake.set()

    def in_background(self, work: Callable[[], None]) -> None:
        """Do this in a thread of its own, and look at all attempts then."""

        def run() -> None:
            work()
            self._wake.set()

        self._clock.start("background", run)

    # -- threads -------------------------------------------------------------------------------

    def _step(self) -> None:
        while not self._closed.is_set():
            began = self._clock.now()
            idle_cores = self._idle_cores.count(began)
            order = self.order
            more = self.daemon.step(began)
            ended_at = self._clock.now()
            took_s = ended_at - began
            self._on_step(order)
            # The cores are for trainings: a backlog gets at most half of one.
            if more:
                self._pauses.leave_cores(took_s, lambda: self.daemon.has_ranks, self._wake)
                self._wake.clear()
                continue
            attempts = self.daemon.attempts
            ended = [attempt.key for attempt in attempts if attempt.is_over]
            is_watched, is_idle = self.daemon.watched and bool(attempts), self.daemon.is_idle
            pause_s = self._pauses.pause_s(
                began,
                took_s,
                ended,
                is_watched=is_watched,
                is_idle=is_idle,
                idle_cores=idle_cores,
                since_sent_s=ended_at - self.daemon.points_sent_at,
            )
            self._clock.pause(pause_s, self._wake)
            self._wake.clear()

    def _take_checkpoints(self) -> None:
        while not self._closed.is_set():
            has_copies = self.daemon.take_checkpoints(self._clock.now())
            self._pauses.wait_to_copy(has_copies=has_copies)

    def _send_checkpoints(self) -> None:
        backoff = Backoff()
        while not self._closed.is_set():
            try:
                self.daemon.send_checkpoints(self.adoption, lambda: not self._closed.is_set())
                backoff.worked()
                self._pauses.wait_to_send()
            except ServerAway as error:
                log.debug("checkpoints wait: %s", error)
                self._clock.pause(backoff.failed(self._clock.now()), self._closed)

    def _is_in_use(self, ended: EndedAttempt) -> bool:
        """Whether something is to be done for its run, or a run that is not over works in its folder."""
        workdirs = [Path(workdir).resolve() for workdir in self.daemon.workdirs]
        is_workplace = any(workdir.is_relative_to(ended.folder.resolve()) for workdir in workdirs)
        return is_workplace or ended.run_id in self.daemon.runs_in_use | self._checkpoint_tasks.runs

    def _remove_ended(self, ended: EndedAttempts) -> None:
        self._clock.pause(FIRST_LOOK_S, self._closed)
        while not self._closed.is_set():
            for pause_s in ended.tidy() if self._has_orders else ():  # only the server knows what is asked for again
                if self._clock.pause(pause_s, self._closed):
                    return
            self._clock.pause(LOOK_EVERY_S, self._closed)

    def _prepare_starts(self) -> None:
        if self._imports_ahead:
            self._supervisors.want(default_launch(self._node.python, self._node.cpu_threads))
        while not self._closed.is_set():
            if self._supervisors.prepare():
                self._wake.set()  # a launch may wait for it
            self._clock.pause(PREPARE_PAUSE_S, self._closed)

    def _sample_hardware(self) -> None:
        sampler = HardwareSampler(self._node.data_dir, faults=self._faults, clock=self._clock)
        while not self._closed.is_set():
            began = self._clock.now()
            sampler.sample(
                SampledAttempt(attempt.folder, tuple(attempt.assignment.devices)) for attempt in self.daemon.attempts
            )
            self._clock.wait(began + EVERY_S, self._closed)
        sampler.close()


PREPARE_PAUSE_S = 5.0
"""Between looks whether torch is to be imported ahead; each reads the memory and the interpreter's folders."""


# How soon the worker's loops look again: soon while somebody watches, and for a moment after an attempt has ended.

HURRIED_PAUSE_S = 0.02
SENT_EVERY_S = 0.09
"""So long after points were sent it looks for more while somebody watches: a point after a pause is sent at once, and
curves that get more move ten times a second."""
PAUSE_S = 0.2
WATCHED_PAUSE_S = 0.25
"""Where trainings use all cores; all streams are due together then, and make one request."""
IDLE_PAUSE_S = 1.0
"""While no attempt is on this node; news from the server end the pause of the steps."""
CHECKPOINTS_PAUSE_S = 1.0
"""Between looks for checkpoints where none waits to be sent; folders are read once a second."""
PAUSE_PER_STEP = 5
"""The pause after a step is at least this many times as long as the step and the server's answers took where trainings
use all cores: they lost a quarter of their steps to shorter pauses."""
PAUSE_PER_STEP_BESIDE_IDLE_CORES = 1
IDLE_CORES = 0.5
"""With so many idle cores a step takes nothing from a training."""
LONGEST_PAUSE_S = 1.0
"""The longest pause in seconds, also where the server answers late."""
HURRY_S = 5.0
"""Seconds after an end: once the server has everything, it opens the next attempt or gives the devices away."""
Key: TypeAlias = TaskKey


class LoopPauses:
    """The pauses of the loops, which run in a thread each."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._ended: frozenset[Key] = frozenset()
        self._hurried_until = float("-inf")
        self._usual_s = PAUSE_S
        self._may_copy, self._may_send = threading.Event(), threading.Event()

    def pause_s(
        self,
        now: float,
        took_s: float,
        ended: Collection[Key],
        *,
        is_watched: bool,
        is_idle: bool = False,
        idle_cores: float = 0.0,
        since_sent_s: float = math.inf,
    ) -> float:
        """Seconds from a step that took so long until the next one.

        `ended`: the attempts without a process whose end is not settled. `since_sent_s`: since points were sent."""
        self._usual_s = IDLE_PAUSE_S if is_idle else PAUSE_S
        if not self._ended.issuperset(ended):
            self._hurried_until = now + HURRY_S
            self._may_copy.set()
        self._ended = frozenset(ended)
        has_idle_cores = idle_cores >= IDLE_CORES
        per_step = PAUSE_PER_STEP_BESIDE_IDLE_CORES if has_idle_cores else PAUSE_PER_STEP
        usual_s = WATCHED_PAUSE_S if is_watched else self._usual_s
        if now < self._hurried_until:
            usual_s = HURRIED_PAUSE_S
        elif is_watched and has_idle_cores:
            usual_s = max(HURRIED_PAUSE_S, SENT_EVERY_S - since_sent_s)
        return max(usual_s, min(per_step * took_s, LONGEST_PAUSE_S))

    def leave_cores(self, seconds: float, have_ranks: Callable[[], bool], woken: threading.Event) -> None:
        """Wait for so long, but only while ranks run, and until news come: an end or a stop is not held up."""
        until = self._clock.now() + seconds
        while have_ranks() and (now := self._clock.now()) < until:
            if self._clock.wait(min(until, now + PAUSE_S), woken):
                return

    def wait_to_copy(self, *, has_copies: bool = False) -> None:
        """Wait until checkpoints are looked for again; at once when an attempt has ended. Copies are sent meanwhile."""
        if has_copies:
            self._may_send.set()
        if self._clock.pause(self._usual_s if has_copies else CHECKPOINTS_PAUSE_S, self._may_copy):
            self._may_copy.clear()
            self._may_send.set()

    def wait_to_send(self) -> None:
        """Wait until copies are sent again: at once where there are some."""
        self._clock.pause(CHECKPOINTS_PAUSE_S, self._may_send)
        self._may_send.clear()
