"""Runs this node's share of preflight checks: each stage once, in a thread of its own."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Sequence

from domain.assignments import CheckPair, DesiredCheck
from domain.clock import SYSTEM_CLOCK, Clock
from domain.launch.plan import visible_devices
from domain.messages import CheckAnswer, Measured
from worker.launch.interpreter import Unusable, find
from worker.launch.preparation import LocalNode, training_environment
from worker.node import processes
from worker.preflight import allreduce
from worker.preflight.node_check import ProbeListener, check_node, open_listener, probe_ports
from worker.session.client import Client
from worker.session.failures import RequestRefused, ServerAway

log = logging.getLogger(__name__)
REACH_STAGE = 1
Background = Callable[[Callable[[], None]], object]


class Checks:
    """The preflight checks of one node; thread-safe."""

    def __init__(
        self,
        node: LocalNode,
        client: Client,
        background: Background,
        devices: Sequence[str],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._node, self._client, self._background, self._clock = node, client, background, clock
        self._devices = list(devices)
        self._listeners: dict[int, ProbeListener] = {}
        self._started: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def set_desired_checks(self, requests: Sequence[DesiredCheck]) -> None:
        """Replace the desired checks and start those that are new."""
        with self._lock:
            open_ids = {request.check_id for request in requests if request.stage <= REACH_STAGE}
            for check_id in self._listeners.keys() - open_ids:
                self._listeners.pop(check_id).close()
            self._started &= {(request.check_id, request.stage) for request in requests}
            for request in requests:
                if (key := (request.check_id, request.stage)) not in self._started:
                    self._started.add(key)
                    self._background(lambda request=request: self._answer(request))  # type: ignore[misc]

    def _answer(self, request: DesiredCheck) -> None:
        answer = self._run_stage(request)
        if answer is None:
            return
        try:
            self._client.answer_check(request.check_id, answer)
        except (ServerAway, RequestRefused) as error:
            log.info("preflight %d: stage %d was not accepted: %s", request.check_id, request.stage, error)
            with self._lock:  # the next poll starts it again
                self._started.discard((request.check_id, request.stage))

    def _run_stage(self, request: DesiredCheck) -> CheckAnswer | None:
        if request.stage == 0:
            devices = request.devices or self._devices
            node_check = check_node(self._node, self._client, request.python, devices, self._clock)
            if (listener := open_listener(node_check, greeting_of(request.check_id))) is not None:
                self._store_listener(request.check_id, listener)
            return CheckAnswer(stage=request.stage, facts=node_check)
        if request.peers:
            reached = probe_ports(request.peers, greeting_of(request.check_id), self._clock)
            return CheckAnswer(stage=request.stage, reached=reached)
        if request.pair is not None:
            return CheckAnswer(stage=request.stage, measured=self._measure(request))
        return None

    def _measure(self, request: DesiredCheck) -> Measured:
        assert request.pair is not None
        devices = (request.devices or self._devices)[:1]
        return measure(
            request.pair,
            request.python or self._node.python,
            self._node.as_seen_by_others().interface,
            devices,
        )

    def _store_listener(self, check_id: int, listener: ProbeListener) -> None:
        with self._lock:
            if (previous := self._listeners.pop(check_id, None)) is not None:
                previous.close()
            self._listeners[check_id] = listener


def greeting_of(check_id: int) -> str:
    """The greeting by which the nodes of a check recognise each other."""
    return f"rankzero preflight {check_id}"


# Measures an all-reduce with one other node, with the Python that trains.

PROGRAM = str(allreduce.__file__)
LIMIT_S = 150.0
"""Mostly for importing torch from a cold disk; the server waits a little longer."""
SECONDS = 2.0
MEET_LIMIT_S = 90.0
"""Allows for the time in which the other node imports torch."""


def measure(
    pair: CheckPair, python: str, interface: str | None, devices: Sequence[str], limit_s: float = LIMIT_S
) -> Measured:
    """Measure the bytes per second of an all-reduce between two nodes, defined in `allreduce`."""
    settings = {
        "rank": pair.rank,
        "address": pair.address,
        "port": pair.port,
        "backend": pair.backend,
        "seconds": SECONDS,
        "meet_limit_s": MEET_LIMIT_S,
    }
    program = f"exec(compile(open({PROGRAM!r}).read(), {PROGRAM!r}, 'exec'), {{'__name__': '__main__'}})"
    try:
        completed = subprocess.run(
            [find(python), "-c", program, json.dumps(settings)],
            env=_environment(pair, interface, devices),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Measured(problem=f"no all-reduce within {limit_s:g} s")
    except (OSError, ValueError, Unusable) as error:
        return Measured(problem=str(error))
    return _read(completed)


def _environment(pair: CheckPair, interface: str | None, devices: Sequence[str]) -> dict[str, str]:
    env = training_environment(os.environ) | {"OMP_NUM_THREADS": "1", processes.CHECK_VARIABLE: "1"}
    if interface is not None:
        env |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return env | visible_devices(devices if pair.backend == "nccl" else ())


def _read(completed: subprocess.CompletedProcess[bytes]) -> Measured:
    for line in reversed(completed.stdout.decode(errors="replace").splitlines()):
        if line.startswith(allreduce.MARK):
            return Measured(bytes_per_s=float(line.removeprefix(allreduce.MARK)))
    error_lines = [line.strip() for line in completed.stderr.decode(errors="replace").splitlines() if line.strip()]
    return Measured(
        problem=f"no all-reduce: {error_lines[-1][:300] if error_lines else f'exit code {completed.returncode}'}"
    )
