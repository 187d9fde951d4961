"""How far this node's clock is from the server's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from worker.session.failures import ServerAway

TRIES = 3
GOOD_ENOUGH_S = 0.05


class Offset(NamedTuple):
    """This clock minus the server's."""

    seconds: float
    error_s: float
    """It is not known better than this: half of what the answer took."""


def offset(server_time: Callable[[], float], now: Callable[[], float] = time.time) -> Offset:
    """Ask the server for its time and take it as that of the middle of the wait, as NTP does (RFC 5905).

    The quickest of three answers counts; one request of them that fails costs nothing. Raises what the last request
    raises when none is answered."""
    best: Offset | None = None
    for tries_left in reversed(range(TRIES)):
        try:
            measured = _measure(server_time, now)
        except ServerAway:
            if best is None and not tries_left:
                raise
            continue
        if best is None or measured.error_s < best.error_s:
            best = measured
        if best.error_s <= GOOD_ENOUGH_S:
            break
    assert best is not None
    return best


def _measure(server_time: Callable[[], float], now: Callable[[], float]) -> Offset:
    """One request. The stop watch starts before the clock is read: a process that is not run for a while in between
    knows its offset less well, and never takes the pause for an offset."""
    began = time.monotonic()
    asked_at = now()
    theirs = server_time()
    error_s = (time.monotonic() - began) / 2
    return Offset(asked_at + error_s - theirs, error_s)
