"""How far this node's clock is from the server's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

TRIES = 3
GOOD_ENOUGH_S = 0.05


class Offset(NamedTuple):
    """This clock minus the server's."""

    seconds: float
    error_s: float
    """It is not known better than this: half of what the answer took."""


def offset(server_time: Callable[[], float], now: Callable[[], float] = time.time) -> Offset:
    """Ask the server for its time and take it as that of the middle of the wait, as NTP does (RFC 5905).

    The quickest of three answers counts. Raises what asking raises."""
    best: Offset | None = None
    for _ in range(TRIES):
        asked_at, began = now(), time.monotonic()
        theirs = server_time()
        error_s = (time.monotonic() - began) / 2
        if best is None or error_s < best.error_s:
            best = Offset(asked_at + error_s - theirs, error_s)
        if best.error_s <= GOOD_ENOUGH_S:
            break
    assert best is not None
    return best
