"""Live attempts with a silent node: told when the silence begins and ends, and how long it has lasted."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dashboard.live.hub import Hub
from db.engine import Store
from db.queries import run_queries
from db.records import liveness
from db.reports import progress
from domain.liveness import SILENT_AFTER_S
from domain.views import LiveAttempt

log = logging.getLogger("rankzero")


class Silence:
    """Which attempts of one dashboard's store are silent."""

    def __init__(
        self, store: Store, hub: Hub, run_changed: Callable[[str], None], may_note: Callable[[], bool]
    ) -> None:
        """`run_changed` tells whoever looks at a run; `may_note`: of several dashboards only one writes it down."""
        self._store, self._hub = store, hub
        self._run_changed, self._may_note = run_changed, may_note
        self._silent: set[tuple[str, int]] = set()

    def look(self, now: float, noted_at: float) -> None:
        """Once a second: tell of nodes that fell silent or spoke again.

        `now` is the time by which silence is judged, `noted_at` the one that the history shows."""
        silent = set()
        for live in run_queries.live_attempts(self._store):
            key = (live.run_id, live.attempt)
            is_silent = now - live.last_heard > SILENT_AFTER_S
            if is_silent:
                silent.add(key)
            if is_silent != (key in self._silent):
                self._changed(live, now if is_silent else None, noted_at)
            elif is_silent:
                self._hub.publish(live.run_id, {"type": "run"})  # for how long it has been silent
        self._silent = silent

    def _changed(self, live: LiveAttempt, silent_at: float | None, noted_at: float) -> None:
        text = "in contact again"
        if silent_at is not None:
            silent_s = silent_at - live.last_heard
            who = liveness.who_is_silent(self._store, live.fence, silent_at)
            text = f"no contact with {who} for {silent_s:.0f} s"
        if self._may_note():
            progress.contact_changed(self._store, live.run_id, live.attempt, noted_at, text)
        log.warning("run %s/%d: %s", live.run_id, live.attempt, text)
        self._run_changed(live.run_id)
