"""The gateway: registers, polls, and leaves jobs in Slurm when it exits."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import uuid
from types import FrameType
from typing import Any

from domain.clock import SYSTEM_CLOCK, Clock
from domain.messages import NodeFacts, NodeLoad
from domain.slurm import GatewayPaths
from worker.node import hardware
from worker.node.threads import start_thread
from worker.session.answers import DesiredState, Registration
from worker.session.client import Client
from worker.session.failures import ServerAway
from worker.session.options import CannotRun, GatewayOptions, NodeIdentity
from worker.session.server_session import ServerSession, SessionOwner
from worker.slurm.commands import Slurm, SlurmAway
from worker.slurm.gateway import Gateway

log = logging.getLogger("gateway")
POOL = "slurm"
SHORT_PAUSE_S = 0.5


class GatewayProgram(SessionOwner):
    """The daemon of a login node: its identity and its threads. Raises CannotRun."""

    def __init__(self, options: GatewayOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._options, self._data = options, options.data
        self._identity = NodeIdentity(options, os.uname().nodename)
        self._name = self._identity.name
        self._client = Client(options.server, self._identity.token)
        self._session = ServerSession(self._client, self._identity, self, "gateway", clock)
        self._paths = _job_paths(options)
        self._slurm = Slurm()
        self._cluster = self._describe()
        gpus = frozenset(_gpu_partition_names(self._cluster["partitions"]))
        self._gateway = Gateway(self._client, self._slurm, self._data / "jobs", self._paths, gpus)
        self._instance_id = uuid.uuid4().hex
        self._signalled, self._wake = threading.Event(), threading.Event()

    def run(self) -> int:
        """Work until a signal; returns the exit code. Raises CannotRun."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)
        for loop in (self._session.poll, self._session.report_load, self._follow_jobs):
            start_thread(loop.__name__, loop, self._clock)
        log.info("gateway %s serves %s from %s", self._name, self._options.server, self._data)
        while not self._clock.pause(0.5, self._signalled) and self.fatal is None:
            pass
        self._session.close()
        if self.fatal is not None:
            raise CannotRun(self.fatal)
        log.info("gateway %s leaves; its jobs stay in Slurm", self._name)
        return 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._signalled.set()

    def _describe(self) -> dict[str, Any]:
        try:
            partitions, version = self._slurm.partitions(), self._slurm.version()
        except SlurmAway as error:
            raise CannotRun(f"Slurm does not answer here: {error}. Start it where sbatch works.") from error
        return {"version": version, "partitions": partitions, "place": vars(self._paths)}

    def facts(self) -> NodeFacts:
        """The facts to register with."""
        return NodeFacts(
            name=self._name,
            instance_id=self._instance_id,
            hostname=os.uname().nodename,
            address=hardware.address_towards(self._options.server),
            devices=[],
            labels=dict(self._options.labels),
            pool=POOL,
            info=hardware.node_info() | {"slurm": self._cluster, "place": self._identity.directory},
        )

    def load(self) -> NodeLoad:
        """A sample of the login node's load."""
        return hardware.sample_load(self._data)

    def on_registered(self, registration: Registration, *, may_start: bool) -> None:
        """Take up a registration; no job is submitted while the dashboard has another version."""
        self._gateway.starts_new, self._gateway.store = may_start, registration.store
        names = ", ".join(partition["name"] for partition in self._cluster["partitions"])
        version = self._cluster["version"]
        log.info("gateway %s registered (%s; partitions %s)", registration.node_id, version, names)

    def on_desired_state(self, desired: DesiredState) -> None:
        """Take up the newest desired jobs."""
        self._gateway.set_desired_jobs(desired.jobs)
        self._wake.set()

    def _follow_jobs(self) -> None:
        """Reconcile at once when the desired jobs change, and every few seconds while there are jobs."""
        while not self._session.is_closed:
            if self._session.registered.is_set():
                try:
                    self._gateway.step(self._clock.now())
                except ServerAway as error:
                    log.debug("the report failed: %s", error)
            self._clock.pause(SHORT_PAUSE_S if self._gateway.is_idle else self._options.poll_s, self._wake)
            self._wake.clear()


def _job_paths(options: GatewayOptions) -> GatewayPaths:
    own = str(options.data / "slurm")
    python = options.python or sys.executable
    return GatewayPaths(options.server.rstrip("/"), str(options.job_data or own), own, sys.executable, python)


def _gpu_partition_names(partitions: list[dict[str, Any]]) -> list[str]:
    """The names of the partitions with GPUs; the empty name stands for the default partition."""
    gpu_partitions = [partition for partition in partitions if partition["gpus_per_node"]]
    return [partition["name"] for partition in gpu_partitions] + [""] * any(
        partition["is_default"] for partition in gpu_partitions
    )
