"""The worker: its threads, and its handling of signals."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, TypeAlias

from domain.environments.wheels import WheelFile
from domain.messages import Device, NodeFacts, NodeLoad
from worker.agent.daemon import SHUTDOWN_GRACE_S, Daemon
from worker.attempt.attempt import TaskKey
from worker.attempt.ending import Shutdown
from worker.attempt.slurm_job import TIME_LIMIT_GRACE_S, WARNING_SIGNAL, SlurmJob
from worker.checkpoints.upload import sees_server_disk
from worker.environments.wheels import WheelFetcher
from worker.hardware.faults import RecentFaults
from worker.hardware.sampler import EVERY_S, HardwareSampler, SampledAttempt
from worker.hardware.testing import HardwareTests
from worker.launch.interpreter import describe
from worker.launch.preparation import LocalNode, training_environment
from worker.launch.warm import Supervisors, default_launch
from worker.node import hardware
from worker.node.hardware import IdleCores
from worker.node.processes import lower_own_session
from worker.node.threads import start_thread
from worker.preflight.checks import Checks
from worker.session.answers import Adoption, DesiredState, Registration
from worker.session.client import Client
from worker.session.clock import Offset, offset
from worker.session.failures import RequestRefused, ServerAway
from worker.session.options import CannotRun, NodeIdentity, WorkerOptions
from worker.session.server_session import Backoff, ServerSession, SessionOwner

log = logging.getLogger("worker")


class Worker(SessionOwner):
    """One node's daemon, its threads, and its shutdown. Raises CannotRun."""

    def __init__(self, options: WorkerOptions) -> None:
        self._job = None if options.only_attempt is None else SlurmJob.current(options.only_attempt)
        own_name = os.uname().nodename
        if self._job is not None:  # its nodes may share a disk, so each has a folder of its own
            own_name = self._job.node
            options = replace(options, data=options.data / own_name)
        self._options, self._data = options, options.data
        self._identity = NodeIdentity(options, own_name)
        self._name = self._identity.name
        self._contact_file = self._data / "node" / "contact"
        """Its modification time is that of the server's last answer, for health checks without a Rankzero program."""
        self._devices = hardware.devices(options.slots)
        self._client = Client(options.server, self._identity.token)
        self._session = ServerSession(self._client, self._identity, self, "node")
        self._node = node = _node(self._name, self._client, self._devices, options)
        self._python = node.python
        self._node_address = NodeAddress(node, self._client)
        is_warm = options.warm_start and self._job is None
        self._supervisors = Supervisors(self._data, is_warm=is_warm)
        self._daemon = Daemon(self._client, node, self._supervisors.spawn, self._in_background)
        gpus = [device.id for device in self._devices if device.kind == "cuda"]
        self._checks = Checks(node, self._client, self._in_background, gpus)
        self._hardware_tests = HardwareTests(node, self._client, self._in_background)
        self._wheels = WheelFetcher(self._client, self._data / "wheels", self._in_background)
        self._faults = RecentFaults()
        self._instance_id = uuid.uuid4().hex
        self._adoption: Adoption | None = None
        self._wake, self._signalled, self._pauses = threading.Event(), threading.Event(), LoopPauses()
        self._idle_cores = IdleCores()
        self._is_warned = self._may_leave = False
        self._signals = 0
        self._removed_since: float | None = None
        self._is_removed = False

    def run(self) -> int:
        """Work until a signal; returns the exit code. Raises CannotRun."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive_signal)
        if self._job is not None:
            signal.signal(WARNING_SIGNAL, self._receive_warning)
        lower_own_session(NICENESS)
        self._daemon.recover_attempts()
        reports = (self._session.poll, self._session.report_load, self._refresh_address)
        for loop in (
            *reports,
            self._take_checkpoints,
            self._send_checkpoints,
            self._sample_hardware,
            self._prepare_starts,
        ):
            start_thread(loop.__name__, loop)
        stepping = start_thread("steps", self._step)
        log.info("worker %s serves %s from %s", self._name, self._options.server, self._data)
        while not self._signalled.wait(0.5) and self.fatal is None and not self._has_finished_job():
            pass
        if self._signalled.is_set():
            self._say_goodbye()
        is_asked_to_end = self._signalled.is_set() and (self._options.stop_runs or self._job is not None)
        if self._is_removed or is_asked_to_end:
            self._end_runs()
        self._session.close()
        self._supervisors.close()
        self._wake.set()
        stepping.join(LEAVE_LIMIT_S)
        if self.fatal is not None:
            raise CannotRun(self.fatal)
        if self._job is not None:
            return 0 if self._job.has_succeeded(self._data) else 1
        training = [attempt.label for attempt in self._daemon.attempts if not attempt.is_over]
        log.info("worker %s leaves%s", self._name, f"; still training: {', '.join(training)}" if training else "")
        return 0

    def _say_goodbye(self) -> None:
        """Tell the server that this worker is stopped, if it answers at once: its silence is no fault then."""

        def say() -> None:
            with contextlib.suppress(ServerAway, RequestRefused):
                self._client.load(self.load())

        goodbye = threading.Thread(target=say, daemon=True)
        goodbye.start()
        goodbye.join(LEAVE_LIMIT_S)

    def _in_background(self, work: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self._wake.set()

        threading.Thread(target=run, daemon=True).start()

    def _receive_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._signalled.set()

    def _receive_warning(self, number: int, frame: FrameType | None) -> None:
        self._is_warned = True
        self._signalled.set()

    def _has_finished_job(self) -> bool:
        """Whether, in a Slurm job, its attempt has ended and all of its data is uploaded."""
        return self._may_leave and not self._daemon.attempts

    def _end_runs(self) -> None:
        """Stop every run and wait until the server has their ends; a second signal shortens this.

        In a Slurm job there is no limit but Slurm's own, which kills the remaining processes."""
        cause: Shutdown = "worker" if self._job is None else "time limit" if self._is_warned else "slurm"
        self._daemon.shut_down(TIME_LIMIT_GRACE_S if self._is_warned else SHUTDOWN_GRACE_S, cause)
        is_hurried = False
        give_up_at: float | None = None
        while attempts := self._daemon.attempts:
            if self._signals > 1 and not is_hurried:
                is_hurried = True
                self._daemon.shut_down(0.0, cause)
            if self._job is None and all(attempt.is_over for attempt in attempts):
                limit_s = LEAVE_LIMIT_S if is_hurried else ACKNOWLEDGE_LIMIT_S
                give_up_at = give_up_at or time.monotonic() + limit_s
                if time.monotonic() >= give_up_at:
                    log.warning("the end of some runs has not reached the server; it is reported at the next start")
                    return
            self._wake.set()
            time.sleep(0.05)

    # -- threads -------------------------------------------------------------------------------

    def _step(self) -> None:
        while not self._session.is_closed:
            began = time.monotonic()
            idle_cores = self._idle_cores.count(began)
            more = self._daemon.step(began)
            ended_at = time.monotonic()
            took_s = ended_at - began
            # The cores are for trainings: a backlog gets at most half of one.
            if more:
                time.sleep(took_s)
                continue
            attempts = self._daemon.attempts
            ended = [attempt.key for attempt in attempts if attempt.is_over]
            is_watched, is_idle = self._daemon.watched and bool(attempts), self._daemon.is_idle
            pause_s = self._pauses.pause_s(
                began,
                took_s,
                ended,
                is_watched=is_watched,
                is_idle=is_idle,
                idle_cores=idle_cores,
                since_sent_s=ended_at - self._daemon.points_sent_at,
            )
            self._wake.wait(pause_s)
            self._wake.clear()

    # -- the session with the server -----------------------------------------------------------

    def facts(self) -> NodeFacts:
        """The facts to register with."""
        return NodeFacts(
            name=self._name,
            instance_id=self._instance_id,
            hostname=os.uname().nodename,
            address=self._node.as_seen_by_others().address,
            devices=self._devices,
            labels=dict(self._options.labels),
            pool=self._job.pool if self._job else "",
            held=self._daemon.held_attempts,
            info=hardware.node_info() | {"interpreter": self._interpreter(), "place": self._identity.directory},
        )

    def load(self) -> NodeLoad:
        """A sample of the node's load, with its address and the attempts it holds."""
        sample = self._node_address.add_to(hardware.sample_load(self._data, live=self._daemon.live_runs))
        sample.held, sample.faults = self._daemon.held_attempts, self._faults.since(time.time())
        sample.warm_start, sample.leaving = self._supervisors.status, self._signalled.is_set()
        return sample

    def on_registered(self, registration: Registration, *, may_start: bool) -> None:
        """Take up a registration; nothing new starts while the dashboard has another version."""
        self._daemon.starts_new = may_start
        self._adoption = registration.adopt if sees_server_disk(registration.adopt) else None
        self._removed_since = None
        way = "shares the server's disk" if self._adoption else "uploads its checkpoints"
        log.info("node %s registered (%d slots, %s)", registration.node_id, len(self._devices), way)

    def on_refused(self, message: str) -> None:
        """End this worker, unless attempts are on this node."""
        if not self._daemon.attempts:
            self.fatal = message

    def on_removed(self, message: str) -> None:
        """End this worker and, after a while, its runs: they must not train twice."""
        now = time.monotonic()
        self._removed_since = now if self._removed_since is None else self._removed_since
        log.warning("%s", message)
        if not self._daemon.attempts or now - self._removed_since >= ENDED_AFTER_S:
            self._is_removed, self.fatal = True, message

    def on_desired_state(self, desired: DesiredState) -> None:
        """Take up the newest desired state."""
        self._daemon.set_desired_state(desired)
        self._checks.set_desired_checks(desired.checks)
        self._hardware_tests.set_desired_tests(desired.tests)
        self._may_leave = self._job is not None and desired.leave
        self._wake.set()

    def on_wheels_wanted(self, wheels: Sequence[WheelFile]) -> None:
        """Fetch wheels for nodes without a way to the index."""
        self._wheels.fetch(wheels)

    def on_load_reported(self) -> None:
        """Touch the contact file, because the server has answered."""
        self._contact_file.touch()

    def _interpreter(self) -> dict[str, Any]:
        """The facts of the default interpreter; runs must name another one if it cannot train."""
        facts = describe(self._python, f"node {self._name}", training_environment(os.environ))
        if "problem" in facts:
            log.warning("%s", facts["problem"])
        return facts

    def _refresh_address(self) -> None:
        pause_s = FIRST_REFRESH_S
        while not self._session.is_closed:
            self._session.registered.wait()
            self._node_address.refresh()
            time.sleep(pause_s)
            pause_s = min(REFRESH_EVERY_S, 2 * pause_s)

    def _take_checkpoints(self) -> None:
        while not self._session.is_closed:
            has_copies = self._daemon.take_checkpoints(time.monotonic())
            self._pauses.wait_to_copy(has_copies=has_copies)

    def _prepare_starts(self) -> None:
        self._supervisors.want(default_launch(self._python, self._node.cpu_threads))
        while not self._session.is_closed:
            if self._supervisors.prepare():
                self._wake.set()  # a launch may wait for it
            time.sleep(PREPARE_PAUSE_S)

    def _sample_hardware(self) -> None:
        has_gpus = any(device.kind == "cuda" for device in self._devices)
        sampler = HardwareSampler(self._data, faults=self._faults if has_gpus else None)
        while not self._session.is_closed:
            began = time.monotonic()
            sampler.sample(
                SampledAttempt(attempt.folder, tuple(attempt.assignment.devices)) for attempt in self._daemon.attempts
            )
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))
        sampler.close()

    def _send_checkpoints(self) -> None:
        backoff = Backoff()
        while not self._session.is_closed:
            try:
                self._daemon.send_checkpoints(self._adoption, lambda: not self._session.is_closed)
                backoff.worked()
                self._pauses.wait_to_send()
            except ServerAway as error:
                log.debug("checkpoints wait: %s", error)
                time.sleep(backoff.failed(time.monotonic()))


NICENESS = 10
"""Of the worker's session: beside ranks that need all cores it copies and sends with a tenth of one."""
PREPARE_PAUSE_S = 5.0
"""Between looks whether torch is to be imported ahead; each reads the memory and the interpreter's folders."""
ACKNOWLEDGE_LIMIT_S = 10.0
"""How long a worker that ends its runs waits for the server to acknowledge their ends."""
LEAVE_LIMIT_S = 1.0
ENDED_AFTER_S = 20.0
"""How long the server must insist that another worker is this node before its runs are ended."""


def _node(name: str, client: Client, devices: Sequence[Device], options: WorkerOptions) -> LocalNode:
    is_chosen = options.address is not None
    address = options.address or hardware.address_towards(options.server)
    return LocalNode(
        name=name,
        data_dir=options.data,
        python=options.python or sys.executable,
        address=address,
        interface=hardware.interface_of(address),
        cpu_threads=max(1, hardware.cores() // max(1, len(devices))),
        server_port=None if is_chosen else hardware.port_of(options.server),
        connection_address=None if is_chosen else lambda: client.own_address,
    )


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

    def __init__(self) -> None:
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

    def wait_to_copy(self, *, has_copies: bool = False) -> None:
        """Wait until checkpoints are looked for again; at once when an attempt has ended. Copies are sent meanwhile."""
        if has_copies:
            self._may_send.set()
        if self._may_copy.wait(self._usual_s if has_copies else CHECKPOINTS_PAUSE_S):
            self._may_copy.clear()
            self._may_send.set()

    def wait_to_send(self) -> None:
        """Wait until copies are sent again: at once where there are some."""
        self._may_send.wait(CHECKPOINTS_PAUSE_S)
        self._may_send.clear()


# Tracks a node's slowly changing facts: the address others use, and its clock's offset to the server's.

FIRST_REFRESH_S = 1.0
"""The first pause: much changes while a cluster starts. Later pauses are twice as long each time."""
REFRESH_EVERY_S = 30.0
"""The longest pause; looking up the connections to a server on this machine takes tens of milliseconds."""


class NodeAddress:
    """The address and clock offset, refreshed in a thread of its own and sent with every load sample."""

    def __init__(self, node: LocalNode, client: Client) -> None:
        self._node, self._client = node, client
        self._current = node
        self._clock: Offset | None = None

    def refresh(self) -> None:
        """Look both up; waits for the server's answer."""
        self._current = self._node.as_seen_by_others()
        with contextlib.suppress(ServerAway, RequestRefused):
            self._clock = offset(self._client.time)

    def add_to(self, load: NodeLoad) -> NodeLoad:
        """Add the last known address and clock offset to a load sample."""
        load.address, load.interface = self._current.address, self._current.interface
        if self._clock is not None:
            load.clock_offset_s, load.clock_error_s = self._clock
        return load
