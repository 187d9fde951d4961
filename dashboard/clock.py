"""A clock that never jumps, in seconds since the epoch, and a lease that notices when this process slept."""

from __future__ import annotations

from domain import clock

LONGEST_GAP_S = 30.0
"""More than this between two ticks means that this process stood still, not that all nodes fell silent."""

LEASE_S = 15.0


class AnchoredTime:
    """Wall time anchored once: ages and leases stay right when the machine's clock is set."""

    def __init__(self, time: clock.Clock = clock.SYSTEM_CLOCK) -> None:
        self.time = time
        self._offset = time.wall() - time.now()

    def __call__(self) -> float:
        """Now, in seconds since the epoch."""
        return self.time.now() + self._offset


class Lease:
    """Gives nodes time to report after this process itself stood still, before their silence counts."""

    def __init__(self, now: float, last_awake: float) -> None:
        self._last_tick = now
        self._slept_from = min(now, last_awake)
        self._awake_since = now

    def tick(self, now: float) -> None:
        """Note that this process is awake; call it about once a second."""
        if now - self._last_tick > LONGEST_GAP_S:
            self._slept_from, self._awake_since = self._last_tick, now
        self._last_tick = now

    def judging_time(self, now: float) -> float:
        """The time by which silence is judged; it stands still for one lease after this process slept."""
        return self._slept_from if now - self._awake_since < LEASE_S else now
