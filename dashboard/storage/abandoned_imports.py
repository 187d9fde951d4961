"""Deletes the points that killed imports of archives left in the store."""

from __future__ import annotations

import logging
from collections.abc import Callable

from db.archives.staging import delete_abandoned
from db.engine import Store

log = logging.getLogger("rankzero")
SWEEP_EVERY_S = 60.0


class AbandonedImports:
    """One series at a time, so that nobody waits long for the store."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock, self._sweep_from = store, clock, 0.0

    def sweep(self) -> None:
        """Delete the next abandoned series; called once a second."""
        if (now := self._clock()) < self._sweep_from:
            return
        if delete_abandoned(self._store, now):
            log.info("points of an import that was interrupted deleted")
        else:
            self._sweep_from = now + SWEEP_EVERY_S
