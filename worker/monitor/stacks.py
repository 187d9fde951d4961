"""Request the stacks and collectives of a node's ranks without blocking."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

from domain.collective_records import RankCollectives
from worker.monitor.collective_watch import fetch_records
from worker.monitor.hangs import PythonFrame, RankStatus
from worker.monitor.probe_reader import ProbeReader, RankRecorder

log = logging.getLogger(__name__)
ASK_AGAIN_S = 60.0


class StackRequest:
    """Requests stacks and records of collectives in a thread of its own: ranks may take seconds to answer."""

    def __init__(self, probe: ProbeReader) -> None:
        self._probe = probe
        self._thread: threading.Thread | None = None
        self._frames: dict[int, list[PythonFrame]] | None = None
        self._requested_at = 0.0
        self.collectives: list[RankCollectives] = []
        """The records that came with the latest stacks."""

    def answer(self, now: float, statuses: Sequence[RankStatus]) -> dict[int, list[PythonFrame]] | None:
        """Return the latest stacks by rank, None before the first answer; request them again every minute."""
        if not self.is_pending and (self._frames is None or now - self._requested_at >= ASK_AGAIN_S):
            self._requested_at = now
            self._thread = threading.Thread(
                target=self._request, args=(statuses, self._probe.recorders()), name="stacks", daemon=True
            )
            self._thread.start()
        return self._frames

    def discard(self) -> None:
        """Discard the stacks: the ranks step again."""
        if not self.is_pending:
            self._frames, self._thread, self.collectives = None, None, []

    @property
    def is_pending(self) -> bool:
        """Whether a request is pending."""
        return self._thread is not None and self._thread.is_alive()

    def _request(self, statuses: Sequence[RankStatus], recorders: Mapping[int, RankRecorder]) -> None:
        frames = self._probe.ask_stacks(statuses)
        try:
            self.collectives = fetch_records(self._probe.folder, statuses, frames, recorders)
        except Exception:
            log.exception("the records of collectives could not be read")
        self._frames = frames
