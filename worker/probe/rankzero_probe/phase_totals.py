"""Add up the phases of a rank's steps for the recorder: totals, so that any two records give the mean between them."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from . import process_state
from .phase_clock import COUNT, NAMES, NAMES_ALONE

AT_FIRST_S = 60.0
LATER_EVERY_S = 5.0
"""Totals are written with every line at first, later every so often: a chart of an hour shows no more."""


class PhaseRecord:
    """Seconds in each phase since the first step. Called by the recorder's thread."""

    def __init__(self) -> None:
        self._seconds = [0.0] * COUNT
        self._step = self._written_step = 0
        self._began_at = self._written_at = 0.0
        self._cpu_wait_s: float | None = None

    def figures(self, state: process_state.ProcessState, world_size: int, is_last: bool) -> dict[str, Any]:
        """Return the totals under the key `phases` when they are due; phases that never occurred are left out."""
        if "phases" in state.off:
            return {}
        try:
            self._add(state)
            if not self._is_due(time.monotonic(), is_last):
                return {}
            return {"phases": self._record(state, NAMES if world_size > 1 else NAMES_ALONE)}
        except Exception as error:
            state.failed("phases", error)
            return {}

    def _add(self, state: process_state.ProcessState) -> None:
        steps = state.clock.steps
        for _ in range(len(steps)):
            self._step, seconds = steps.popleft()
            self._seconds = [total + more for total, more in zip(self._seconds, seconds)]  # noqa: B905 - Python 3.9

    def _is_due(self, now: float, is_last: bool) -> bool:
        if self._step == self._written_step:
            return False
        self._began_at = self._began_at or now
        is_early = now - self._began_at < AT_FIRST_S
        if not (is_last or is_early or now - self._written_at > LATER_EVERY_S - 0.5):
            return False
        self._written_at, self._written_step = now, self._step
        return True

    def _record(self, state: process_state.ProcessState, names: dict[str, tuple[int, ...]]) -> dict[str, Any]:
        totals = {name: round(sum(self._seconds[phase] for phase in phases), 6) for name, phases in names.items()}
        record = {name: total for name, total in totals.items() if total}
        cpu_wait_s = _cpu_wait_s(state.thread)
        if cpu_wait_s is not None:
            self._cpu_wait_s = cpu_wait_s if self._cpu_wait_s is None else self._cpu_wait_s
            record["cpu_wait_s"] = round(cpu_wait_s - self._cpu_wait_s, 6)
        return {"step": self._step, **record}


def _cpu_wait_s(thread: int | None) -> float | None:
    """Return the seconds for which the thread was ready and no CPU was free for it; None where Linux hides them."""
    tasks = [running.native_id for running in threading.enumerate() if running.ident == thread]
    if thread == threading.main_thread().ident:
        tasks = [os.getpid()]  # after a fork Python still has the number of the parent's thread
    try:
        with open(f"/proc/self/task/{tasks[0]}/schedstat") as file:  # noqa: PTH123 - pathlib costs 5 ms
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None
