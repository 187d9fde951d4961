"""Runs this node's share of preflight checks: each stage once, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from domain.messages import CheckAnswer, Measured
from domain.spec import DesiredCheck
from worker.launch.preparation import LocalNode
from worker.preflight.bandwidth import measure
from worker.preflight.node_check import check_node, open_listener
from worker.preflight.port_probe import ProbeListener, probe_ports
from worker.session.client import Client
from worker.session.failures import RequestRefused, ServerAway

log = logging.getLogger(__name__)
REACH_STAGE = 1
Background = Callable[[Callable[[], None]], object]


class Checks:
    """The preflight checks of one node; thread-safe."""

    def __init__(self, node: LocalNode, client: Client, background: Background, devices: Sequence[str]) -> None:
        self._node, self._client, self._background = node, client, background
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
            node_check = check_node(self._node, self._client, request.python, request.devices or self._devices)
            if (listener := open_listener(node_check, greeting_of(request.check_id))) is not None:
                self._store_listener(request.check_id, listener)
            return CheckAnswer(stage=request.stage, facts=node_check)
        if request.peers:
            return CheckAnswer(stage=request.stage, reached=probe_ports(request.peers, greeting_of(request.check_id)))
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
