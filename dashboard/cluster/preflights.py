"""Preflights as the dashboard runs them: asked for, answered by nodes, and driven on when a node is silent."""

from __future__ import annotations

from collections.abc import Callable, Collection

from db.engine import Store
from db.preflight import preflight_results, preflight_sessions
from db.records.exceptions import NoSuchCheck
from domain.messages import CheckAnswer
from domain.spec import CheckWish
from domain.views import CheckView


class Preflights:
    """Safe to use from any thread."""

    def __init__(self, store: Store, wishes_changed: Callable[[Collection[str] | None], None]) -> None:
        self._store, self._wishes_changed = store, wishes_changed
        self._ended: dict[int, CheckView] = {}
        """They never change again, and judging hundreds of nodes takes long."""

    def ask(self, nodes: list[str] | None, bandwidth: bool, now: float) -> int:
        """Ask nodes, by name or id (None: all that are alive). Raises NoSuchNode, Refused."""
        check_id = preflight_sessions.ask(self._store, nodes, bandwidth, now)
        self._wishes_changed(preflight_sessions.node_ids(self._store, check_id))
        return check_id

    def all(self) -> list[CheckView]:
        """Those on demand, newest first."""
        ended, found = self._ended, []
        for check_id in preflight_sessions.on_demand(self._store):
            found += (
                [ended[check_id]] if check_id in ended else preflight_sessions.views(self._store, check_id)
            )
        self._ended = {check.id: check for check in found if check.id and check.ended_at is not None}
        return found

    def one(self, check_id: int) -> CheckView:
        """As far as it got. Raises NoSuchCheck."""
        found = preflight_sessions.views(self._store, check_id)
        if not found:
            raise NoSuchCheck(
                f"There is no preflight {check_id}; the last {preflight_sessions.KEPT} are kept."
            )
        return found[0]

    def of_run(self, run_id: str) -> CheckView | None:
        """What a run's nodes found before they might start; None on one node. Raises NoSuchRun."""
        return preflight_results.preflight_of_run(self._store, run_id)

    def wishes(self, node_id: str) -> list[CheckWish]:
        """Those a node takes part in."""
        return preflight_sessions.wishes(self._store, node_id)

    def answered(self, node_id: str, check_id: int, said: CheckAnswer, now: float) -> list[str]:
        """Take an answer; returns the ids of the runs that went on by it."""
        moved, run_ids = preflight_results.check_answered(self._store, node_id, check_id, said, now)
        if moved:
            self._wishes_changed(preflight_sessions.node_ids(self._store, check_id))
        return run_ids

    def tick(self, now: float) -> list[str]:
        """Go on without nodes that are too late; returns the ids of the runs that went on by it."""
        moved, run_ids = preflight_results.checks_overdue(self._store, now)
        if moved:
            self._wishes_changed(None)
        return run_ids
