"""The health of nodes and devices as people see and change it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from dashboard.clock import AnchoredTime
from db import acting
from db.engine import Store
from db.health import hardware_tests, quarantine_requests
from domain.health.testing import TestAnswer
from domain.health.views import HardwareTestView, IncidentView
from domain.people.roles import Action
from domain.views import NodeView

log = logging.getLogger("rankzero")


class NodeHealth:
    """The memory and quarantines of one store's nodes; safe to use from any thread."""

    def __init__(
        self,
        store: Store,
        clock: AnchoredTime,
        desired_state_changed: Callable[[Collection[str] | None], None],
        view: Callable[[str], NodeView],
        schedule: Callable[[], None],
    ) -> None:
        self._store, self._clock, self._view, self._schedule = store, clock, view, schedule
        self._desired_state_changed = desired_state_changed

    def release(self, node: str, device: str | None = None) -> NodeView:
        """End the quarantine of a node, or of one device. Raises NoSuchNode, InvalidRequest, WrongState, Denied."""
        acting.rights().check(Action.OPERATE, None)
        node_id = quarantine_requests.release(self._store, node, device, self._clock())
        self._schedule()
        view = self._view(node_id)
        log.info("node %s%s is out of quarantine", view.name, f", device {device}," if device else "")
        return view

    def ask_test(self, node: str) -> HardwareTestView:
        """Have a node test its devices that no run has. Raises NoSuchNode, WrongState, Denied."""
        acting.rights().check(Action.OPERATE, None)
        test_id, node_id = hardware_tests.ask(self._store, node, self._clock())
        self._desired_state_changed([node_id])
        return self.test(test_id)

    def test(self, test_id: int) -> HardwareTestView:
        """A test with its results so far. Raises NoSuchCheck."""
        return hardware_tests.test_view(self._store, test_id, self._clock())

    def latest_test(self, node_id: str) -> HardwareTestView | None:
        """The latest test of a node; None without any."""
        with self._store.read() as session:
            test_id = hardware_tests.newest(session, node_id)
        return None if test_id is None else self.test(test_id)

    def answered(self, node_id: str, test_id: int, answer: TestAnswer) -> None:
        """Take a node's results of a test."""
        hardware_tests.answered(self._store, node_id, test_id, answer, self._clock())
        self._desired_state_changed([node_id])
        self._schedule()

    def incidents(self, node: str) -> list[IncidentView]:
        """Return the memory of a node, newest first. Raises NoSuchNode."""
        return quarantine_requests.incidents(self._store, node)
