"""Judge rules about series: a curve is read again only when it has grown."""

from __future__ import annotations

from collections.abc import Iterator

from db.alerts.alerts import AlertView
from db.alerts.run_curves import curve, disks
from db.engine import Store
from domain.alerts.judgement import RunEvent, RunFacts, filling_disk, growth_bytes_per_s, spikes, standstill
from domain.alerts.rules import Rule, Trigger
from domain.messages import State

EVERY_S = 10.0
LAST_POINTS = 400
MOST_POINTS = 4000


class SeriesRules:
    """What one dashboard has judged so far; after a restart it begins again, and the store knows each event."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._judged: dict[tuple[str, int], tuple[float, int]] = {}
        """When an alert last judged an attempt's curve, and its points then, by alert and fence."""

    def events(self, alert: AlertView, rule: Rule, run: RunFacts, now: float) -> Iterator[RunEvent]:
        """Yield the events of a run that trains."""
        judged_at, count = self._judged.get((alert.id, run.fence), (float("-inf"), -1))
        if run.state != State.RUNNING or abs(now - judged_at) < EVERY_S:
            return
        if rule.condition == Trigger.DISK_FULL:
            self._judged[alert.id, run.fence] = (now, count)
            yield from self._filling_disks(run, rule.limit or 0.0, now)
            return
        is_spike = rule.condition == Trigger.SPIKE
        last, most = (LAST_POINTS, None) if is_spike else (None, MOST_POINTS)
        read = curve(self._store, run.fence, rule.series, last=last, most=most, known_count=count)
        self._judged[alert.id, run.fence] = (now, read.count if read else count)
        if read is None:
            return
        if is_spike:
            since = alert.created_at
            yield from spikes(run, read.name, read.points, read.finite_count, read.finite_sum, since)
        elif rule.limit is not None:
            yield from standstill(run, read.name, read.points, rule.limit, now)

    def _filling_disks(self, run: RunFacts, limit: float, now: float) -> Iterator[RunEvent]:
        for disk in disks(self._store, run.fence, now):
            growth = growth_bytes_per_s(disk.samples, now)
            if growth is not None:
                yield from filling_disk(run, disk.node, disk.node_rank, disk.free_bytes, growth, limit, now)

    def forget_all_but(self, fences: set[int]) -> None:
        """Forget attempts that are no longer judged."""
        self._judged = {name: judged for name, judged in self._judged.items() if name[1] in fences}
