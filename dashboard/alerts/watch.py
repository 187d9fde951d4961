"""Watch runs for the rules that people set, and have the messages sent."""

from __future__ import annotations

from collections.abc import Iterator

from dashboard.alerts.acting import act
from dashboard.alerts.outbox import Outbox, Sender
from dashboard.alerts.series_rules import SeriesRules
from dashboard.cluster.joining import address_for_others, is_loopback
from dashboard.service.service import Service
from db.alerts import alerts, events, notices
from db.alerts.alerts import AlertView
from db.alerts.run_facts import run_facts
from domain.alerts import judgement
from domain.alerts.judgement import RunEvent, RunFacts
from domain.alerts.rules import FROM_POINTS, parse_rule

EVERY_S = 2.0
LOOK_BACK_S = 7 * 86_400.0
"""At the start of a dashboard: what ended before it was killed and was not recorded."""
OVERLAP_S = 60.0
"""Later: reports that were being stored while runs were judged."""


class AlertWatch:
    """Judges one dashboard's runs; everything it knows is in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._judged_at = 0.0
        self._ended_since = service.clock() - LOOK_BACK_S
        self._series_rules = SeriesRules(service.store)
        sender = Sender(service.settings.alert_private_targets)
        self._outbox = Outbox(service.store, service.clock, sender, self._url)

    def tick(self) -> None:
        """Record what happened, and start to send what is due; called once a second."""
        service, now = self._service, self._service.clock()
        if service.store.trouble is not None or not (service.peers is None or service.peers.leads):
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
        return f"http://127.0.0.1:{listening.port}"

    def _judge(self, now: float) -> None:
        store, recorded = self._service.store, list[tuple[str, RunEvent]]()
        if current := alerts.alerts(store):
            runs = run_facts(store, self._ended_since)
            self._series_rules.forget_all_but({run.fence for run in runs})
            for alert in current:
                found = list(self._events(alert, runs, now))
                if alert.act is None:
                    recorded += [(alert.id, event) for event in found]
                for event in found if alert.act else ():
                    act(self._service, alert, event, now)
            events.record(store, recorded, now)
            events.settle_left_behind(store, now)
            notices.give_up(store, now)
        self._ended_since = now - OVERLAP_S

    def _events(self, alert: AlertView, runs: list[RunFacts], now: float) -> Iterator[RunEvent]:
        rule = parse_rule(alert.rule)
        for run in runs:
            if alert.project not in (None, run.project) or alert.run_id not in (None, run.run_id):
                continue
            if rule.condition in FROM_POINTS:
                yield from self._series_rules.events(alert, rule, run, now)
            else:
                yield from judgement.events(rule, run, alert.created_at, now)
