"""Live attempts with a silent node: told when the silence begins and ends, and how long it has lasted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from db import contact, progress, queries
from db.views import LiveAttempt

if TYPE_CHECKING:
    from dashboard.service import Service

log = logging.getLogger("rankzero")


class Silence:
    """Which attempts of one dashboard's store are silent."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._silent: set[tuple[str, int]] = set()

    def look(self, now: float) -> None:
        """Once a second: tell of nodes that fell silent or spoke again."""
        silent = set()
        for live in queries.live_attempts(self._service.store):
            key = (live.run_id, live.attempt)
            is_silent = now - live.last_heard > contact.SILENT_AFTER_S
            if is_silent:
                silent.add(key)
            if is_silent != (key in self._silent):
                self._changed(live, now if is_silent else None)
            elif is_silent:
                self._service.hub.publish(live.run_id, {"type": "run"})  # for how long it has been silent
        self._silent = silent

    def _changed(self, live: LiveAttempt, silent_at: float | None) -> None:
        service, said = self._service, "in contact again"
        if silent_at is not None:
            silent_s = silent_at - live.last_heard
            who = contact.who_is_silent(service.store, live.fence, silent_at)
            said = f"no contact with {who} for {silent_s:.0f} s"
        is_ours_to_note = service.peers is None or service.peers.leads  # the other dashboards see it as well
        if is_ours_to_note and service.store.trouble is None:
            progress.contact_changed(service.store, live.run_id, live.attempt, service.clock(), said)
        log.warning("run %s/%d: %s", live.run_id, live.attempt, said)
        service.run_changed(live.run_id)
