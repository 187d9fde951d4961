"""Request the stacks of a node's ranks without blocking."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from worker.monitor.hangs import PythonFrame, RankStatus
from worker.monitor.probe_reader import ProbeReader

ASK_AGAIN_S = 60.0


class StackRequest:
    """Requests stacks in a thread of its own: ranks may take seconds to answer."""

    def __init__(self, probe: ProbeReader) -> None:
        self._probe = probe
        self._thread: threading.Thread | None = None
        self._frames: dict[int, list[PythonFrame]] | None = None
        self._requested_at = 0.0

    def answer(self, now: float, statuses: Sequence[RankStatus]) -> dict[int, list[PythonFrame]] | None:
        """Return the latest stacks by rank, None before the first answer; request them again every minute."""
        if not self.is_pending and (self._frames is None or now - self._requested_at >= ASK_AGAIN_S):
            self._requested_at = now
            self._thread = threading.Thread(
                target=self._request, args=(statuses,), name="stacks", daemon=True
            )
            self._thread.start()
        return self._frames

    def discard(self) -> None:
        """Discard the stacks: the ranks step again."""
        if not self.is_pending:
            self._frames, self._thread = None, None

    @property
    def is_pending(self) -> bool:
        """Whether a request is pending."""
        return self._thread is not None and self._thread.is_alive()

    def _request(self, statuses: Sequence[RankStatus]) -> None:
        self._frames = self._probe.ask_stacks(statuses)
