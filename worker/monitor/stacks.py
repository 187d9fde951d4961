"""Asks the ranks of a node where they stand, without waiting for their answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from worker.monitor.hangs import PythonFrame, RankStatus
from worker.monitor.probe_reader import ProbeReader

ASK_AGAIN_S = 60.0


class StackQuestion:
    """Asks the ranks where they stand, in a thread of its own: they may take seconds to answer."""

    def __init__(self, probe: ProbeReader) -> None:
        self._probe = probe
        self._thread: threading.Thread | None = None
        self._frames: dict[int, list[PythonFrame]] | None = None
        self._asked_at = 0.0

    def answer(self, now: float, statuses: Sequence[RankStatus]) -> dict[int, list[PythonFrame]] | None:
        """The newest answer, None while the first one is awaited; asks again every minute."""
        if not self.is_asking and (self._frames is None or now - self._asked_at >= ASK_AGAIN_S):
            self._asked_at = now
            self._thread = threading.Thread(target=self._ask, args=(statuses,), name="stacks", daemon=True)
            self._thread.start()
        return self._frames

    def forget(self) -> None:
        """They step again: what they said is old."""
        if not self.is_asking:
            self._frames, self._thread = None, None

    @property
    def is_asking(self) -> bool:
        """No answer yet."""
        return self._thread is not None and self._thread.is_alive()

    def _ask(self, statuses: Sequence[RankStatus]) -> None:
        self._frames = self._probe.ask_stacks(statuses)
