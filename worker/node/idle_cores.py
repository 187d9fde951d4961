"""How many of the cores that this process may use nobody uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psutil

from worker.node import control_groups
from worker.node.hardware import allowed_cpus

MEASURED_EVERY_S = 1.0
Reading = tuple[float, Sequence[control_groups.CpuQuota]]
"""Seconds that the cores that we may run on have been idle together, and the quotas above us."""


class IdleCores:
    """Measures them at most once a second; a look in between costs nothing."""

    def __init__(self, read: Callable[[], Reading] | None = None) -> None:
        self._read = read or _read
        self._measured_at, self._before, self._cores = float("-inf"), self._read(), 0.0

    def count(self, now: float) -> float:
        """The idle cores between the last two measurements; 0 before the second."""
        passed_s = now - self._measured_at
        if passed_s >= MEASURED_EVERY_S:
            reading = self._read()
            self._cores = idle_cores(self._before, reading, passed_s)
            self._measured_at, self._before = now, reading
        return self._cores


def idle_cores(before: Reading, after: Reading, passed_s: float) -> float:
    """The idle cores between two readings: those of the machine, and no more than each quota leaves."""
    quotas = zip(before[1], after[1], strict=False)
    left = [_left(first, then, passed_s) for first, then in quotas]
    return max(0.0, min([(after[0] - before[0]) / passed_s, *left]))


def _left(before: control_groups.CpuQuota, after: control_groups.CpuQuota, passed_s: float) -> float:
    """The cores that a quota leaves; none where the kernel does not tell how much of it is used."""
    if before.used_s is None or after.used_s is None:
        return 0.0
    return after.cores - (after.used_s - before.used_s) / passed_s


def _read() -> Reading:
    times = [cpu for number, cpu in enumerate(psutil.cpu_times(percpu=True)) if number in allowed_cpus()]
    idle_s = sum(cpu.idle + getattr(cpu, "iowait", 0.0) for cpu in times)
    return idle_s, control_groups.cpu_quotas()
