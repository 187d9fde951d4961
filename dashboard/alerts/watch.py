"""Watch runs for the rules that people set, and have the messages sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dashboard.alerts.acting import act
from dashboard.alerts.outbox import AlertOutbox, Sender
from dashboard.cluster.joining import address_for_others, is_loopback, own_url
from dashboard.service.service import Service
from db.alerts import alerts, events
from db.alerts.alerts import AlertView
from db.alerts.events import give_up
from db.alerts.run_facts import curve, disks, gpus, quarantined, run_facts
from db.engine import Store
from domain.alerts import judgement
from domain.alerts.judgement import (
    RunEvent,
    RunFacts,
    filling_disk,
    growth_bytes_per_s,
    idle_gpu,
    spikes,
    standstill,
)
from domain.alerts.rules import FROM_POINTS, Rule, Trigger, parse_rule
from domain.messages import State
from domain.people.roles import Action
from domain.scheduling.fit import without_names


class AlertWatch:
    """Judges one dashboard's runs; everything it knows is in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._judged_at = 0.0
        self._ended_since = service.clock() - LOOK_BACK_S
        self._series_rules = SeriesRules(service.store)
        sender = Sender(service.settings.alert_private_targets)
        self._outbox = AlertOutbox(service.store, service.clock, sender, self._url)

    def tick(self) -> None:
        """Record what happened, and start to send what is due; called once a second."""
        service, now = self._service, self._service.clock()
        if not service.leads():
            return
        if abs(now - self._judged_at) >= EVERY_S:
            self._judged_at = now
            self._judge(now)
        self._outbox.send_due()

    def close(self) -> None:
        """End all sending."""
        self._outbox.close()

    def _url(self) -> str:
        """The dashboard's address in messages; on this machine only, unless it listens for others."""
        listening, public_url = self._service.listening(), self._service.settings.public_url
        if public_url or not is_loopback(listening.host):
            return public_url or address_for_others(listening)[0]
        return own_url("127.0.0.1", listening.port, listening.scheme)

    def _judge(self, now: float) -> None:
        store, recorded = self._service.store, list[tuple[str, RunEvent]]()
        if current := alerts.alerts(store):
            runs = run_facts(store, self._ended_since)
            self._series_rules.forget_all_but({run.fence for run in runs})
            for alert in current:
                alert_events = list(self._events(alert, runs, now)) + self._left_out(alert)
                if alert.act is None:
                    recorded += [(alert.id, event) for event in alert_events]
                for event in alert_events if alert.act else ():
                    act(self._service, alert, event, now)
            events.record(store, recorded, now)
            events.settle_left_behind(store, now)
            give_up(store, now)
        self._ended_since = now - OVERLAP_S

    def _left_out(self, alert: AlertView) -> list[RunEvent]:
        """The quarantines, for an alert about these."""
        is_asked = alert.rule == Trigger.QUARANTINE
        is_there = self._service.identities.person(alert.by).refusal_anywhere(Action.SEE) is None
        return quarantined(self._service.store) if is_asked and is_there else []

    def _events(self, alert: AlertView, runs: list[RunFacts], now: float) -> Iterator[RunEvent]:
        """Yield what happened to the runs that the alert is about, as far as its owner may see or act on them."""
        rule, person = parse_rule(alert.rule), self._service.identities.person(alert.by)
        action = Action.ACT if alert.act else Action.SEE
        for run in runs:
            if alert.project not in (None, run.project) or alert.run_id not in (None, run.run_id):
                continue
            if not person.may(action, run.project, run.by):
                continue
            if person.only_projects is not None and run.waiting_for:
                run = replace(run, waiting_for=without_names(run.waiting_for))
            if rule.condition in FROM_POINTS:
                yield from self._series_rules.events(alert, rule, run, now)
            else:
                yield from judgement.events(rule, run, alert.created_at, now)


EVERY_S = 2.0
LOOK_BACK_S = 7 * 86_400.0
"""At the start of a dashboard: what ended before it was killed and was not recorded."""
OVERLAP_S = 60.0
"""Later: reports that were being stored while runs were judged."""

# Judge rules about series: a curve is read again only when it has grown.

SERIES_EVERY_S = 10.0
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
        if run.state != State.RUNNING or abs(now - judged_at) < SERIES_EVERY_S:
            return
        if rule.condition == Trigger.DISK_FULL:
            self._judged[alert.id, run.fence] = (now, count)
            yield from self._filling_disks(run, rule.limit or 0.0, now)
            return
        if rule.condition == Trigger.IDLE_GPU:
            self._judged[alert.id, run.fence] = (now, count)
            for gpu in gpus(self._store, run.fence, rule.limit or 0.0):
                yield from idle_gpu(run, gpu, rule.limit or 0.0, now)
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
