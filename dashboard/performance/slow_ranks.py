"""Live runs with a slow rank: judged every few seconds from what the probes of all nodes reported."""

from __future__ import annotations

from collections.abc import Callable

from db.attempts import attempt_queries
from db.engine import Store
from db.exceptions import NoSuchRun
from db.findings.findings import finding_judged
from db.metrics.phases import phase_counts, phase_totals
from domain.performance.slow_ranks import KIND, slow_rank_finding, slow_ranks

EVERY_S = 10.0


class SlowRanks:
    """The slow ranks of one dashboard's live runs."""

    def __init__(self, store: Store, run_changed: Callable[[str], None], may_note: Callable[[], bool]) -> None:
        """`run_changed` notifies a run's viewers; `may_note`: only one of several dashboards judges."""
        self._store, self._run_changed, self._may_note = store, run_changed, may_note
        self._judged_at = float("-inf")
        self._is_slow: dict[int, bool] = {}
        """Fence -> whether its attempt has the finding; missing before the first judgement."""
        self._counts: dict[int, int] = {}
        """Fence -> the number of points when its attempt was last judged."""

    def update(self, now: float) -> None:
        """Judge all live runs that have new points when it is time; called once a second."""
        if now - self._judged_at < EVERY_S or not self._may_note():
            return
        self._judged_at = now
        run_of = {live.fence: live.run_id for live in attempt_queries.live_attempts(self._store)}
        before, self._counts = self._counts, phase_counts(self._store, run_of)
        self._is_slow = {
            fence: self._is_slow[fence]
            if fence in self._is_slow and count == before.get(fence)
            else self._judge(run_of[fence], fence, now)
            for fence, count in self._counts.items()
        }

    def _judge(self, run_id: str, fence: int, now: float) -> bool:
        try:
            finding = slow_rank_finding(slow_ranks(*phase_totals(self._store, run_id)))
        except NoSuchRun:  # deleted meanwhile
            return False
        is_news = finding is not None or self._is_slow.get(fence, True)
        if is_news and finding_judged(self._store, fence, KIND, finding, now):
            self._run_changed(run_id)
        return finding is not None
