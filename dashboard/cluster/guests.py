"""The guest nodes of one dashboard: they leave with their runs, without anybody's doing."""

from __future__ import annotations

import math
from collections.abc import Callable

from dashboard.clock import AnchoredTime
from db.engine import Store
from db.watched import guests

EVERY_S = 10.0


class Guests:
    """Removes the guests that have left."""

    def __init__(self, store: Store, clock: AnchoredTime, forget: Callable[[str], None]) -> None:
        """`forget` ends the token of a node."""
        self._store, self._clock, self._forget = store, clock, forget
        self._swept_at = -math.inf

    def sweep(self) -> None:
        """Remove them when it is time; called once a second."""
        now = self._clock()
        if now - self._swept_at >= EVERY_S:
            self._swept_at = now
            for node_id in guests.remove_gone(self._store, now):
                self._forget(node_id)
