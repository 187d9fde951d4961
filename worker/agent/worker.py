"""The worker: its threads, and its handling of signals."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from domain.assignments import DesiredCheck
from domain.checkpoint_use.tasks import DONE_HERE
from domain.clock import SYSTEM_CLOCK, Clock
from domain.environments.wheels import WheelFile
from domain.masking.log_lines import hidden
from domain.messages import Device, NodeFacts, NodeLoad
from worker.agent.accounts.trainings import RECORD_FILE, AccountTrainings
from worker.attempt.reports import Shutdown
from worker.attempt.slurm_job import TIME_LIMIT_GRACE_S, WARNING_SIGNAL, SlurmJob
from worker.checkpoint_tasks.work import KINDS
from worker.checkpoints.upload import sees_server_disk
from worker.environments.wheels import WheelFetcher
from worker.hardware.faults import RecentFaults
from worker.hardware.testing import HardwareTests
from worker.launch.interpreter import describe
from worker.launch.preparation import LocalNode, training_environment
from worker.node import hardware
from worker.node.standing_back import WORKER_NICENESS, StandingBack
from worker.node.threads import start_thread
from worker.preflight.checks import Checks
from worker.session.answers import DesiredState, Registration
from worker.session.client import Client
from worker.session.clock import Offset, offset
from worker.session.failures import RequestRefused, ServerAway
from worker.session.options import CannotRun, NodeIdentity, WorkerOptions
from worker.session.server_session import ServerSession, SessionOwner
from worker.trainings.daemon import SHUTDOWN_GRACE_S
from worker.trainings.trainings import Trainings

log = logging.getLogger("worker")


class Worker(SessionOwner):
    """One node's daemon, its threads, and its shutdown. Raises CannotRun."""

    def __init__(self, options: WorkerOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
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
        self._session = ServerSession(self._client, self._identity, self, "node", clock)
        self._node = node = _node(self._name, self._client, self._devices, options)
        self._python = node.python
        self._node_address = NodeAddress(node, self._client, clock)
        gpus = [device.id for device in self._devices if device.kind == "cuda"]
        self._faults = RecentFaults()
        self._trainings = self._new_trainings(has_gpus=bool(gpus))
        background = self._trainings.in_background
        self._checks = Checks(node, self._client, background, gpus, clock)
        self._hardware_tests = HardwareTests(node, self._client, background, clock)
        self._wheels = WheelFetcher(self._client, self._data / "node" / "wheels", background, clock)
        self._instance_id = uuid.uuid4().hex
        self._signalled = threading.Event()
        self._is_warned = self._may_leave = self._may_start = False
        self._signals = 0
        self._removed_since: float | None = None
        self._is_removed = False

    def _new_trainings(self, *, has_gpus: bool) -> Trainings | AccountTrainings:
        is_warm, run_as = self._options.warm_start and self._job is None, self._options.run_as
        faults = self._faults if has_gpus else None
        warm_start = is_warm and not run_as
        own = Trainings(self._client, self._node, is_warm=warm_start, faults=faults, clock=self._clock)
        if not (run_as or (self._data / RECORD_FILE).exists()) or self._job is not None:
            return own
        server = self._options.server
        return AccountTrainings(
            own, run_as, self._node, self._client, server=server, warm_start=is_warm, clock=self._clock
        )

    def run(self) -> int:
        """Work until a signal; returns the exit code. Raises CannotRun."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive_signal)
        if self._job is not None:
            signal.signal(WARNING_SIGNAL, self._receive_warning)
        standing = StandingBack(WORKER_NICENESS, interrupts=True)
        self._trainings.start()
        for loop in (self._session.poll, self._session.report_load, self._refresh_address):
            start_thread(loop.__name__, loop, self._clock)
        log.info("worker %s serves %s from %s", self._name, self._options.server, self._data)
        while not self._clock.pause(0.5, self._signalled) and self.fatal is None and not self._has_finished_job():
            standing.follow(ranks_run=self._trainings.has_ranks)
        if self._signalled.is_set():
            self._say_goodbye()
        is_asked_to_end = self._signalled.is_set() and (self._options.stop_runs or self._job is not None)
        if self._is_removed or is_asked_to_end:
            self._end_runs()
        self._session.close()
        self._trainings.close(LEAVE_LIMIT_S)
        return self._exit_code()

    def _exit_code(self) -> int:
        """How the job of Slurm ended, else 0. Raises CannotRun."""
        if self.fatal is not None:
            raise CannotRun(self.fatal)
        if self._job is not None:
            return 0 if self._job.has_succeeded(self._data) else 1
        training = self._trainings.training
        log.info("worker %s leaves%s", self._name, f"; still training: {', '.join(training)}" if training else "")
        return 0

    def _say_goodbye(self) -> None:
        """Tell the server that this worker is stopped, if it answers at once: its silence is no fault then."""

        def say() -> None:
            with contextlib.suppress(ServerAway, RequestRefused):
                self._client.load(self.load())

        self._clock.pause(LEAVE_LIMIT_S, self._clock.start("goodbye", say))

    def _receive_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._signalled.set()

    def _receive_warning(self, number: int, frame: FrameType | None) -> None:
        self._is_warned = True
        self._signalled.set()

    def _has_finished_job(self) -> bool:
        """Whether, in a Slurm job, its attempt has ended and all of its data is uploaded."""
        return self._may_leave and not self._trainings.unsettled

    def _end_runs(self) -> None:
        """Stop every run and wait until the server has their ends; a second signal shortens this.

        In a Slurm job there is no limit but Slurm's own, which kills the remaining processes."""
        cause: Shutdown = "worker" if self._job is None else "time limit" if self._is_warned else "slurm"
        self._trainings.shut_down(TIME_LIMIT_GRACE_S if self._is_warned else SHUTDOWN_GRACE_S, cause)
        is_hurried = False
        give_up_at: float | None = None
        while self._trainings.unsettled:
            if self._signals > 1 and not is_hurried:
                is_hurried = True
                self._trainings.shut_down(0.0, cause)
            if self._job is None and not self._trainings.training:
                limit_s = LEAVE_LIMIT_S if is_hurried else ACKNOWLEDGE_LIMIT_S
                give_up_at = give_up_at or self._clock.now() + limit_s
                if self._clock.now() >= give_up_at:
                    log.warning("the end of some runs has not reached the server; it is reported at the next start")
                    return
            self._trainings.wake()
            self._clock.pause(0.05)

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
            held=self._trainings.held,
            info=hardware.node_info()
            | {"interpreter": self._interpreter(), "place": self._identity.directory, "run_as": self._run_as}
            | {DONE_HERE: KINDS if self._job is None else ()},
        )

    def load(self) -> NodeLoad:
        """A sample of the node's load, with its address and the attempts it holds."""
        sample = self._node_address.add_to(hardware.sample_load(self._data, live=self._trainings.live_runs))
        sample.held, sample.faults = self._trainings.held, self._faults.since(self._clock.wall())
        sample.warm_start, sample.leaving = self._trainings.status, self._signalled.is_set()
        return sample

    def on_registered(self, registration: Registration, *, may_start: bool) -> None:
        """Take up a registration; nothing new starts while the dashboard has another version."""
        self._may_start, self._removed_since = may_start, None
        self._trainings.adoption = adoption = registration.adopt if sees_server_disk(registration.adopt) else None
        way = "shares the server's disk" if adoption else "uploads its checkpoints"
        log.info("node %s registered (%d slots, %s)", registration.node_id, len(self._devices), way)

    def on_refused(self, message: str) -> None:
        """End this worker, unless attempts are on this node."""
        if not self._trainings.unsettled:
            self.fatal = message

    def on_removed(self, message: str) -> None:
        """End this worker and, after a while, its runs: they must not train twice."""
        now = self._clock.now()
        self._removed_since = now if self._removed_since is None else self._removed_since
        log.warning("%s", message)
        if not self._trainings.unsettled or now - self._removed_since >= ENDED_AFTER_S:
            self._is_removed, self.fatal = True, message

    def on_desired_state(self, desired: DesiredState) -> None:
        """Take up the newest desired state."""
        hidden.add(value for one in desired.assignments for value in one.secrets.values())
        self._trainings.set_desired_state(desired, may_start=self._may_start)
        self._checks.set_desired_checks(self._own_checks(desired.checks))
        self._hardware_tests.set_desired_tests(desired.tests)
        self._may_leave = self._job is not None and desired.leave

    def _own_checks(self, checks: Sequence[DesiredCheck]) -> list[DesiredCheck]:
        """The preflights that run under the worker's account: with accounts, none with a Python that a person named."""
        trainings = self._trainings
        if not (isinstance(trainings, AccountTrainings) and self._options.run_as):
            return list(checks)
        own = [check for check in checks if not trainings.account_of_check(check)]
        return [check.model_copy(update={"python": None}) for check in own]

    def on_wheels_wanted(self, wheels: Sequence[WheelFile]) -> None:
        """Fetch wheels for nodes without a way to the index."""
        self._wheels.fetch(wheels)

    def on_load_reported(self) -> None:
        """Touch the contact file, because the server has answered."""
        self._contact_file.touch()

    @property
    def _run_as(self) -> str:
        """Under whose account trainings run here."""
        if self._job is not None:
            return "job"
        return "accounts" if self._options.run_as else "worker"

    def _interpreter(self) -> dict[str, Any]:
        """The facts of the default interpreter; runs must name another one if it cannot train."""
        facts = describe(self._python, f"node {self._name}", training_environment(os.environ))
        if "problem" in facts:
            log.warning("%s", facts["problem"])
        return facts

    def _refresh_address(self) -> None:
        pause_s = FIRST_REFRESH_S
        while not self._session.is_closed:
            self._clock.wait(math.inf, self._session.registered)
            self._node_address.refresh()
            self._clock.pause(pause_s)
            pause_s = min(REFRESH_EVERY_S, 2 * pause_s)


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
        keep_attempts_s=options.keep_attempts_s,
        server_port=None if is_chosen else hardware.port_of(options.server),
        connection_address=None if is_chosen else lambda: client.own_address,
    )


# Tracks a node's slowly changing facts: the address others use, and its clock's offset to the server's.

FIRST_REFRESH_S = 1.0
"""The first pause: much changes while a cluster starts. Later pauses are twice as long each time."""
REFRESH_EVERY_S = 30.0
"""The longest pause; looking up the connections to a server on this machine takes tens of milliseconds."""


class NodeAddress:
    """The address and clock offset, refreshed in a thread of its own and sent with every load sample."""

    def __init__(self, node: LocalNode, client: Client, clock: Clock) -> None:
        self._node, self._client, self._clock = node, client, clock
        self._current = node
        self._offset: Offset | None = None

    def refresh(self) -> None:
        """Look both up; waits for the server's answer."""
        self._current = self._node.as_seen_by_others()
        with contextlib.suppress(ServerAway, RequestRefused):
            self._offset = offset(self._client.time, self._clock)

    def add_to(self, load: NodeLoad) -> NodeLoad:
        """Add the last known address and clock offset to a load sample."""
        load.address, load.interface = self._current.address, self._current.interface
        if self._offset is not None:
            load.clock_offset_s, load.clock_error_s = self._offset
        return load
