"""The offset between this node's clock and the server's."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from domain.clock import SYSTEM_CLOCK, Clock
from worker.session.failures import ServerAway

TRIES = 3
GOOD_ENOUGH_S = 0.05


class Offset(NamedTuple):
    """This clock minus the server's."""

    seconds: float
    error_s: float
    """The uncertainty: half of the round-trip time."""


def offset(server_time: Callable[[], float], clock: Clock = SYSTEM_CLOCK) -> Offset:
    """Measure the offset as NTP does (RFC 5905): the server's time belongs to the middle of the round trip.

    Uses the fastest of three requests and ignores failed ones. Raises ServerAway if all fail."""
    best: Offset | None = None
    for tries_left in reversed(range(TRIES)):
        try:
            measured = _measure(server_time, clock)
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


def _measure(server_time: Callable[[], float], clock: Clock) -> Offset:
    """Measure with one request. The timer starts before the clock is read, so that a pause of the process in between
    counts as uncertainty and not as an offset."""
    began = clock.now()
    sent_at = clock.wall()
    server_s = server_time()
    error_s = (clock.now() - began) / 2
    return Offset(sent_at + error_s - server_s, error_s)
