"""The program `rankzero gateway`: registers, polls, and leaves jobs in Slurm when it exits."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from domain import protocol
from domain.launch.slurm_script import GatewayPaths
from domain.messages import NodeFacts
from domain.text.log_lines import log_to_stderr
from worker.agent.daemon import Backoff
from worker.agent.notices import Notices
from worker.agent.options import CannotRun, join_token, parser_with
from worker.agent.program import lock_data, start_thread
from worker.node import hardware, processes
from worker.node.state_files import read_object, write_whole
from worker.session.answers import Registration
from worker.session.client import Client
from worker.session.failures import Ended, RequestRefused, ServerAway, Unauthorized
from worker.slurm.commands import Slurm, SlurmAway
from worker.slurm.gateway import Gateway

log = logging.getLogger("gateway")
POOL = "slurm"
SHORT_PAUSE_S = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Run `rankzero gateway` until SIGTERM; returns the exit code."""
    log_to_stderr(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    options = _parser().parse_args(argv)
    try:
        return GatewayProgram(options).run()
    except CannotRun as error:
        print(f"rankzero gateway: {error}", file=sys.stderr)
        return 1


class GatewayProgram:
    """The daemon of a login node: its identity and its threads."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._data: Path = options.data.expanduser().absolute()
        self._lock = lock_data(self._data)
        lock = os.fstat(self._lock)
        self._data_identity = f"{processes.boot_id()}:{lock.st_dev}:{lock.st_ino}"
        self._identity_file = self._data / "node" / "node.json"
        self._identity = read_object(self._identity_file)
        self._join_token = join_token(options, self._data, is_needed=not self._identity.get("token"))
        self._name = options.name or self._identity.get("name") or os.uname().nodename
        self._client = Client(options.server, self._identity.get("token", ""))
        self._paths = _job_paths(options, self._data)
        self._slurm = Slurm()
        self._cluster = self._describe()
        gpus = frozenset(_gpu_partition_names(self._cluster["partitions"]))
        self._gateway = Gateway(self._client, self._slurm, self._data / "jobs", self._paths, gpus)
        self._instance_id = uuid.uuid4().hex
        self._poll_wait_s, self._heartbeat_s = 20.0, 5.0
        self._ends, self._wake, self._registered = threading.Event(), threading.Event(), threading.Event()
        self._was_registered = False
        self._notices = Notices()
        self._fatal: str | None = None

    def run(self) -> int:
        """Work until a signal; returns the exit code. Raises CannotRun."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)
        for loop in (self._poll, self._report_load, self._follow_jobs):
            start_thread(loop.__name__, loop)
        log.info("gateway %s serves %s from %s", self._name, self._options.server, self._data)
        while not self._ends.wait(0.5) and self._fatal is None:
            pass
        if self._fatal is not None:
            raise CannotRun(self._fatal)
        log.info("gateway %s leaves; its jobs stay in Slurm", self._name)
        return 0

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._ends.set()

    def _describe(self) -> dict[str, Any]:
        try:
            partitions, version = self._slurm.partitions(), self._slurm.version()
        except SlurmAway as error:
            raise CannotRun(f"Slurm does not answer here: {error}. Start it where sbatch works.") from error
        return {"version": version, "partitions": partitions, "place": vars(self._paths)}

    def _poll(self) -> None:
        version: str | None = None
        backoff = Backoff()
        while not self._ends.is_set():
            try:
                if not self._registered.is_set():
                    self._register()
                    version = None
                desired = self._client.desired_state(version, self._poll_wait_s)
            except Ended as error:
                self._fatal = str(error)
                return
            except Unauthorized as error:
                self._registered.clear()
                log.info("the server asks this gateway to register: %s", error)
                time.sleep(backoff.failed(time.monotonic()))
            except ServerAway as error:
                log.debug("the poll failed: %s", error)
                time.sleep(backoff.failed(time.monotonic()))
            else:
                backoff.worked()
                if desired.store != self._client.store:
                    self._registered.clear()  # another store than before: register with it
                    continue
                version = desired.version
                self._notices.replace("unreadable", desired.unreadable)
                self._gateway.set_desired_jobs(desired.jobs)
                self._wake.set()

    def _register(self) -> None:
        facts = NodeFacts(
            name=self._name,
            instance_id=self._instance_id,
            hostname=os.uname().nodename,
            address=hardware.address_towards(self._options.server),
            devices=[],
            labels=dict(self._options.label),
            pool=POOL,
            info=hardware.node_info() | {"slurm": self._cluster, "place": self._data_identity},
        )
        try:
            answer = self._join(facts)
        except (Unauthorized, RequestRefused, Ended) as error:
            self._fatal = f"{self._options.server} refuses this gateway: {error}"
            raise ServerAway(str(error)) from error
        self._identity = {"node_id": answer.node_id, "token": answer.token, "name": self._name}
        write_whole(self._identity_file, json.dumps(self._identity))
        self._poll_wait_s, self._heartbeat_s = answer.poll_wait_s, answer.heartbeat_s
        protocol_warning = protocol.warning(answer.protocol)
        self._gateway.starts_new = protocol_warning is None
        self._notices.replace("protocol", [protocol_warning] if protocol_warning else [])
        self._gateway.store = answer.store
        self._was_registered = True
        self._registered.set()
        names = ", ".join(partition["name"] for partition in self._cluster["partitions"])
        log.info("gateway %s registered (%s; partitions %s)", answer.node_id, self._cluster["version"], names)

    def _join(self, facts: NodeFacts) -> Registration:
        """Register with the gateway's own token, or with the join token if the server no longer knows that."""
        node_id = self._identity.get("node_id")
        if self._client.token:
            try:
                return self._client.register(facts, node_id, self._client.token, self._was_registered)
            except Unauthorized:
                if not self._join_token:
                    raise
        return self._client.register(facts, node_id, self._join_token, self._was_registered)

    def _report_load(self) -> None:
        while not self._ends.is_set():
            self._registered.wait(1.0)
            if self._registered.is_set():
                try:
                    self._client.load(self._notices.add_to(hardware.sample_load(self._data)))
                except (ServerAway, RequestRefused) as error:
                    log.debug("the load was not accepted: %s", error)
                time.sleep(self._heartbeat_s)

    def _follow_jobs(self) -> None:
        """Reconcile at once when the desired jobs change, and every few seconds while there are jobs."""
        while not self._ends.is_set():
            if self._registered.is_set():
                try:
                    self._gateway.step(time.monotonic())
                except ServerAway as error:
                    log.debug("the report failed: %s", error)
            self._wake.wait(SHORT_PAUSE_S if self._gateway.is_idle else self._options.poll)
            self._wake.clear()


def _job_paths(options: argparse.Namespace, data: Path) -> GatewayPaths:
    own = str(data / "slurm")
    return GatewayPaths(
        options.server.rstrip("/"), str(options.job_data or own), own, sys.executable, options.python
    )


def _gpu_partition_names(partitions: list[dict[str, Any]]) -> list[str]:
    """The names of the partitions with GPUs; the empty name stands for the default partition."""
    gpu_partitions = [partition for partition in partitions if partition["gpus_per_node"]]
    return [partition["name"] for partition in gpu_partitions] + [""] * any(
        partition["is_default"] for partition in gpu_partitions
    )


def _parser() -> argparse.ArgumentParser:
    parser = parser_with("rankzero gateway", "Submit the runs of pool slurm as jobs of this cluster.")
    parser.add_argument(
        "--job-data",
        type=Path,
        metavar="DIR",
        help="where jobs keep their data, as their nodes see it (default: slurm in the data folder)",
    )
    parser.add_argument(
        "--poll", type=float, default=5.0, metavar="S", help="seconds between two calls of squeue"
    )
    return parser
