"""Live attempts that need attention: those with a silent node, and those with a slow rank."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dashboard.live.hub import Hub
from db.attempts import attempt_queries, liveness
from db.engine import Store
from db.exceptions import NoSuchRun
from db.findings.findings import finding_judged
from db.health.incidents import ranks_were_slow
from db.metrics.performance import phase_counts, phase_totals
from db.tasks import task_reports
from domain.liveness import is_silent
from domain.performance.slow_ranks import KIND, slow_rank_finding, slow_ranks
from domain.views import LiveAttempt

log = logging.getLogger("rankzero")


class Silence:
    """The silent attempts of one dashboard's store."""

    def __init__(
        self, store: Store, hub: Hub, run_changed: Callable[[str], None], may_note: Callable[[], bool]
    ) -> None:
        """`run_changed` notifies a run's viewers; `may_note`: only one of several dashboards records the history."""
        self._store, self._hub = store, hub
        self._run_changed, self._may_note = run_changed, may_note
        self._silent_attempts: set[tuple[str, int]] = set()
        self.live_runs = frozenset[str]()
        """The runs that were live at the last update."""

    def update(self, now: float, noted_at: float) -> None:
        """Announce nodes that fell silent or are back; called once a second.

        `now` is the time by which silence is judged, `noted_at` the time shown in the history."""
        silent = set()
        live_attempts = attempt_queries.live_attempts(self._store)
        self.live_runs = frozenset(live.run_id for live in live_attempts)
        for live in live_attempts:
            key = (live.run_id, live.attempt)
            has_fallen_silent = is_silent(now - live.last_heard)
            if has_fallen_silent:
                silent.add(key)
            if has_fallen_silent != (key in self._silent_attempts):
                self._record_change(live, now if has_fallen_silent else None, noted_at)
            elif has_fallen_silent:
                self._hub.publish(live.run_id, {"type": "run"})  # shows for how long it has been silent
        self._silent_attempts = silent

    def _record_change(self, live: LiveAttempt, silent_at: float | None, noted_at: float) -> None:
        text = "in contact again"
        if silent_at is not None:
            silent_s = silent_at - live.last_heard
            silent_nodes = liveness.names_of_silent_nodes(self._store, live.fence, silent_at)
            text = f"no contact with {silent_nodes} for {silent_s:.0f} s"
        if self._may_note():
            task_reports.contact_changed(self._store, live.run_id, live.attempt, noted_at, text)
        log.warning("run %s/%d: %s", live.run_id, live.attempt, text)
        self._run_changed(live.run_id)


# Live runs with a slow rank: judged every few seconds from what the probes of all nodes reported.

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
            slow = slow_ranks(*phase_totals(self._store, run_id))
            finding = slow_rank_finding(slow)
        except NoSuchRun:  # deleted meanwhile
            return False
        is_news = finding is not None or self._is_slow.get(fence, True)
        if is_news and finding_judged(self._store, fence, KIND, finding, now):
            ranks_were_slow(self._store, fence, slow, now)
            self._run_changed(run_id)
        return finding is not None
