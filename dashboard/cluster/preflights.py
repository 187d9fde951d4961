"""Preflights: requested by people, answered by nodes, and continued when a node is silent."""

from __future__ import annotations

from collections.abc import Callable, Collection

from dashboard.clock import Clock
from db.engine import Store
from db.exceptions import NoSuchCheck
from db.preflight import preflight_results, preflight_sessions
from domain.messages import CheckAnswer
from domain.spec import DesiredCheck
from domain.views import CheckView


class Preflights:
    """All preflights of one store; safe to use from any thread."""

    def __init__(
        self, store: Store, clock: Clock, desired_state_changed: Callable[[Collection[str] | None], None]
    ) -> None:
        self._store, self._clock = store, clock
        self._desired_state_changed = desired_state_changed
        self._ended: dict[int, CheckView] = {}
        """Cached: they never change again, and judging hundreds of nodes takes long."""

    def ask(self, nodes: list[str] | None, bandwidth: bool) -> int:
        """Ask nodes, by name or id (None: all that are online). Raises NoSuchNode, InvalidRequest."""
        check_id = preflight_sessions.ask(self._store, nodes, bandwidth, self._clock())
        self._desired_state_changed(preflight_sessions.node_ids(self._store, check_id))
        return check_id

    def all(self) -> list[CheckView]:
        """The preflights that people asked for, newest first."""
        ended_checks, checks = self._ended, []
        for check_id in preflight_sessions.on_demand(self._store):
            checks += (
                [ended_checks[check_id]]
                if check_id in ended_checks
                else preflight_sessions.views(self._store, check_id)
            )
        self._ended = {check.id: check for check in checks if check.id and check.ended_at is not None}
        return checks

    def one(self, check_id: int) -> CheckView:
        """One preflight with the answers so far. Raises NoSuchCheck."""
        checks = preflight_sessions.views(self._store, check_id)
        if not checks:
            raise NoSuchCheck(
                f"There is no preflight {check_id}; the last {preflight_sessions.MOST_REMEMBERED} are kept."
            )
        return checks[0]

    def of_run(self, run_id: str) -> CheckView | None:
        """The preflight before a run's start; None on one node. Raises NoSuchRun."""
        return preflight_results.preflight_of_run(self._store, run_id)

    def requested_checks(self, node_id: str) -> list[DesiredCheck]:
        """The preflights that a node takes part in."""
        return preflight_sessions.check_requests(self._store, node_id)

    def answered(self, node_id: str, check_id: int, check_answer: CheckAnswer) -> list[str]:
        """Take a node's answer; returns the ids of the runs that it moved on."""
        moved, run_ids = preflight_results.check_answered(self._store, node_id, check_id, check_answer, self._clock())
        if moved:
            self._desired_state_changed(preflight_sessions.node_ids(self._store, check_id))
        return run_ids

    def tick(self, now: float) -> list[str]:
        """Continue without overdue nodes; returns the ids of the runs that this moved on."""
        moved, run_ids = preflight_results.checks_overdue(self._store, now)
        if moved:
            self._desired_state_changed(None)
        return run_ids
