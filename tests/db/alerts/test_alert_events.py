"""Alerts and their events on both stores: recorded once, claimed once, settled by the outcome."""

from __future__ import annotations

import pytest

from db.alerts import alerts, events
from db.alerts.run_facts import curve, run_facts
from db.engine import Store
from db.exceptions import NoSuchAlert, NoSuchRun
from db.findings.findings import findings_reported
from db.runs import run_requests
from domain.alerts.judgement import RunEvent
from domain.alerts.message import GATHER_S, GIVE_UP_S, SendOutcome
from domain.messages import Finding, State
from tests.db.cluster import Cluster

SOON = 5.0


def event(key: str, at: float = 10.0) -> RunEvent:
    return RunEvent(key, None, at, f"{key} failed.")


def alert_of(store: Store, now: float = 1.0, secret: str | None = None) -> str:
    return alerts.create(store, "failed", "slack://a/b/c", secret, now)


def claim(store: Store, now: float, busy=(), most: int = 4) -> list[events.OutgoingMessage]:
    return events.claim(store, now, busy, most)


def test_an_event_is_recorded_once_for_each_alert(store: Store) -> None:
    first, second = alert_of(store), alert_of(store, 2.0)
    wanted = [(first, event("a")), (second, event("a")), (first, event("b"))]
    assert events.record(store, wanted, SOON) == 3
    assert events.record(store, wanted, SOON) == 0
    assert [alert.waiting for alert in alerts.alerts(store)] == [2, 1]
    assert events.record(store, [("abcdefghij", event("c"))], SOON) == 0, "the alert was removed meanwhile"


def test_alert_is_claimed_by_one_sender(store: Store) -> None:
    alert_id = alert_of(store)
    events.record(store, [(alert_id, event("a"))], SOON)
    assert claim(store, SOON, most=0) == claim(store, SOON, busy=["slack://a/b/c"]) == []
    (delivery,) = claim(store, SOON)
    assert claim(store, SOON) == []
    events.settle(store, delivery, SendOutcome.ACCEPTED, None, 6.0)
    view = alerts.alert(store, alert_id)
    assert (view.last_sent_at, view.waiting, view.problem) == (6.0, 0, None)
    assert claim(store, 10_000.0) == [] and events.record(store, [(alert_id, event("a"))], 7.0) == 0


def test_events_that_follow_a_message_are_gathered_into_one(store: Store) -> None:
    alert_id = alert_of(store)
    events.record(store, [(alert_id, event("a"))], SOON)
    events.settle(store, claim(store, SOON)[0], SendOutcome.ACCEPTED, None, SOON)
    for key in "bcd":
        events.record(store, [(alert_id, event(key))], SOON + 1)
    assert claim(store, SOON + GATHER_S - 1) == []
    events.record_test(store, alert_id, SOON + 2)
    (test,) = claim(store, SOON + 2)
    assert (test.rule, len(test.items)) == ("test", 1), "a test waits for nothing"
    events.settle(store, test, SendOutcome.ACCEPTED, None, SOON + 2)
    (gathered,) = claim(store, SOON + GATHER_S + 2)
    assert [item.sentence for item in gathered.items] == ["b failed.", "c failed.", "d failed."]


def test_a_receiver_that_is_down_gets_everything_in_one_message_later(store: Store) -> None:
    alert_id = alert_of(store)
    events.record(store, [(alert_id, event("a"))], SOON)
    (first,) = claim(store, SOON)
    events.settle(store, first, SendOutcome.UNAVAILABLE, "It answered 503.", SOON)
    assert alerts.alert(store, alert_id).problem == "It answered 503."
    events.record(store, [(alert_id, event("b"))], SOON + 9)
    assert claim(store, SOON + 8) == []
    (second,) = claim(store, SOON + 10)
    assert len(second.items) == 2 and second.message_id != first.message_id


def test_a_message_that_may_have_arrived_is_repeated_only_where_its_id_tells(store: Store) -> None:
    plain, webhook = alert_of(store), alerts.create(store, "failed", "https://h/", "whsec_", 1.0)
    events.record(store, [(plain, event("a")), (webhook, event("a"))], SOON)
    claimed = {delivery.alert_id: delivery for delivery in claim(store, SOON)}
    events.settle(store, claimed[plain], SendOutcome.UNCLEAR, "No answer.", SOON)
    events.settle_left_behind(store, SOON + events.LEFT_BEHIND_S)
    assert claim(store, SOON + events.LEFT_BEHIND_S) == []
    events.settle_left_behind(store, SOON + events.LEFT_BEHIND_S + 1)  # the dashboard was killed
    events.record(store, [(webhook, event("b"))], SOON + 500)
    again, other = claim(store, SOON + 500), claim(store, SOON + 500)
    assert [d.message_id for d in again] == [claimed[webhook].message_id] and len(again[0].items) == 1
    assert [item.sentence for d in other for item in d.items] == ["b failed."]


def test_a_removed_alert_sends_nothing(store: Store) -> None:
    alert_id = alert_of(store)
    events.record(store, [(alert_id, event("a"))], SOON)
    assert alerts.remove(store, alert_id).id == alert_id
    assert claim(store, 100.0) == [] == alerts.alerts(store)
    for unknown in (alert_id, "x' or 1=1", ""):
        with pytest.raises(NoSuchAlert):
            alerts.alert(store, unknown)
    with pytest.raises(NoSuchRun):
        alerts.create(store, "failed", "slack://", None, 1.0, run_id="abcdefghij")


def test_facts_are_of_the_latest_attempts_that_are_live_or_ended_lately(cluster: Cluster) -> None:
    run_id = cluster.launch(name="digits", project="p", gpus_per_node=2)
    waiting = cluster.launch(name="later", gpus_per_node=2)
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "running")
    findings = [Finding(kind="hung", evidence="No step.", meaning="m", fix="n")]
    findings_reported(cluster.store, cluster.node_id, fence, 0, findings, 120.0)
    live, queued = run_facts(cluster.store, 0.0)
    assert (live.run_id, live.name, live.project, live.state) == (run_id, "digits", "p", State.RUNNING)
    assert [(f.kind, f.evidence, f.first_at) for f in live.findings] == [("hung", "No step.", 120.0)]
    assert (queued.run_id, queued.state, queued.created_at) == (waiting, State.QUEUED, 100.0)
    cluster.now = 200.0
    cluster.report(fence, "failed", message="It broke.")
    assert (State.FAILED, "It broke.") in [(f.state, f.message) for f in run_facts(cluster.store, 200.0)]
    assert [f.run_id for f in run_facts(cluster.store, 200.5)] == [waiting]
    run_requests.resume(cluster.store, run_id, 210.0)
    assert {(f.run_id, f.state) for f in run_facts(cluster.store, 0.0)} == {
        (run_id, State.QUEUED), (waiting, State.QUEUED)
    }  # fmt: skip


def test_a_curve_is_the_training_loss_unless_named_and_is_read_when_it_has_grown(cluster: Cluster) -> None:
    cluster.launch(gpus_per_node=2)
    fence = cluster.assignments()[0].fence
    loss = [(step, 1.0 / (step + 1), 100.0 + step) for step in range(0, 2000, 2)]
    accuracy = [(step, 0.5, 100.0) for step in (10, 20)]
    assert curve(cluster.store, fence, None, last=None, most=100, known_count=-1) is None
    cluster.points(fence, 0, 10, {"train/loss": loss, "val/accuracy": accuracy})
    whole = curve(cluster.store, fence, None, last=None, most=100, known_count=-1)
    assert whole is not None and (whole.name, whole.count) == ("train/loss", 1000)
    assert 10 < len(whole.points) <= 100 and whole.points[0][0] == 0
    assert whole.finite_count == 1000
    assert whole.finite_sum == pytest.approx(sum(value for _, value, _ in loss))
    end = curve(cluster.store, fence, "train/loss", last=50, most=None, known_count=-1)
    assert end is not None and [p[0] for p in end.points][-1] == 1998 and 40 <= len(end.points) <= 60
    named = curve(cluster.store, fence, "val/accuracy", last=50, most=None, known_count=1)
    assert named is not None and [p[1] for p in named.points] == [0.5, 0.5]
    for name, known in (("val/accuracy", 2), ("none", -1), ("train/loss", 1000)):
        assert curve(cluster.store, fence, name, last=50, most=None, known_count=known) is None


def test_events_of_more_runs_than_one_statement_takes_are_recorded_once(store: Store) -> None:
    alert_id = alert_of(store)
    many = [(alert_id, event(f"run{n}")) for n in range(events.KEYS_AT_ONCE + 1)]
    assert (events.record(store, many, SOON), events.record(store, many, SOON)) == (len(many), 0)
    (delivery,) = claim(store, SOON)
    assert len(delivery.items) == len(many), "gathered into one message"


def of_browser(store: Store) -> str:
    return alerts.create(store, "failed", "browser", None, 1.0)


def test_browser_alert_waits_for_a_tab_and_for_no_sender(store: Store) -> None:
    alert_id, other = of_browser(store), alert_of(store)
    events.record(store, [(alert_id, event("a")), (other, event("b"))], SOON)
    events.record_test(store, alert_id, SOON)
    assert [delivery.alert_id for delivery in claim(store, SOON)] == [other]
    newest, notifications = events.browser_notifications(store, None)
    assert (
        notifications[0].sentence == "a failed."
        and [each.rule for each in notifications] == ["failed", "test"]
        and newest == notifications[-1].id
    )
    events.shown(store, [each.id for each in notifications] + [10**6], 7.0)
    assert events.browser_notifications(store, None) == (newest, [])
    view = alerts.alert(store, alert_id)
    assert (view.waiting, view.last_sent_at, view.problem) == (0, 7.0, None)


def test_another_browser_is_shown_what_came_after_what_it_knows(store: Store) -> None:
    alert_id = of_browser(store)
    events.record(store, [(alert_id, event("a"))], SOON)
    newest, (first,) = events.browser_notifications(store, None)
    events.record(store, [(alert_id, event("b"))], SOON)
    events.shown(store, [each.id for each in events.browser_notifications(store, None)[1]], SOON)
    assert [each.sentence for each in events.browser_notifications(store, newest)[1]] == ["b failed."]
    assert [each.sentence for each in events.browser_notifications(store, first.id - 1)[1]] == [
        "a failed.",
        "b failed.",
    ]


def test_a_tab_cannot_settle_what_is_sent_to_addresses(store: Store) -> None:
    events.record(store, [(alert_of(store), event("a"))], SOON)
    (delivery,) = claim(store, SOON)
    events.settle(store, delivery, SendOutcome.UNAVAILABLE, None, SOON)
    events.shown(store, delivery.event_ids, SOON)
    assert events.browser_notifications(store, 0) == (0, []) and alerts.alerts(store)[0].waiting == 1


def test_browser_alert_is_given_up_after_a_day(store: Store) -> None:
    alert_id = of_browser(store)
    events.record(store, [(alert_id, event("a", at=10.0))], SOON)
    events.give_up(store, 10.0 + GIVE_UP_S - 1)
    assert alerts.alert(store, alert_id).waiting == 1
    events.give_up(store, 10.0 + GIVE_UP_S + 1)
    view = alerts.alert(store, alert_id)
    assert (view.waiting, view.problem) == (0, events.UNSEEN) and events.browser_notifications(store, None)[1] == []
