"""How many of the node's cores nobody uses."""

from __future__ import annotations

from collections.abc import Callable

import psutil

from worker.node.hardware import cores

MEASURED_EVERY_S = 1.0


class IdleCores:
    """Measures them at most once a second; a look in between costs nothing."""

    def __init__(self, idle_s: Callable[[], float] | None = None) -> None:
        """`idle_s`: seconds that all cores together have been idle since the boot."""
        self._idle_s = idle_s or _idle_since_boot_s
        self._measured_at, self._idle_before_s, self._cores = float("-inf"), 0.0, 0.0

    def count(self, now: float) -> float:
        """The idle cores between the last two measurements; 0 before the second."""
        passed_s = now - self._measured_at
        if passed_s >= MEASURED_EVERY_S:
            idle_s = self._idle_s()
            self._cores = (idle_s - self._idle_before_s) / passed_s
            self._measured_at, self._idle_before_s = now, idle_s
        return self._cores


def _idle_since_boot_s() -> float:
    if cores() < (psutil.cpu_count() or 1):
        return 0.0  # in a container others may have what is idle
    times = psutil.cpu_times()
    return float(times.idle + getattr(times, "iowait", 0.0))
