"""Rules, when runs meet them, and the messages that follow, without a store or a network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.alerts.judgement import OpenFinding, RunFacts, events
from domain.alerts.message import DeliveryState, MessageItem, SendOutcome, message, pause_s, state_after
from domain.alerts.rules import Rule, Trigger, parse_rule
from domain.alerts.targets import check_target, masked_target
from domain.messages import State
from domain.requests.errors import InvalidRequest

RUN = RunFacts("abcdefghij", "digits", "default", 1, 7, State.RUNNING, None, 100.0, None, None)
HUNG = OpenFinding("hung", "No rank has made a step for 66 s.", 150.0)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("failed", Rule(Trigger.FAILED)),
        (" hung ", Rule(Trigger.HUNG)),
        ("waits=30m", Rule(Trigger.WAITS, 1800.0)),
        ("waits=1.5h", Rule(Trigger.WAITS, 5400.0)),
        ("disk-full=2h", Rule(Trigger.DISK_FULL, 7200.0)),
        ("spike", Rule(Trigger.SPIKE)),
        ("no-improvement=500:val/loss", Rule(Trigger.NO_IMPROVEMENT, 500.0, "val/loss")),
    ],
)
def test_a_rule_is_read(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    "fails waits waits=0s waits=-1m waits=31d disk-full disk-full=2 disk-full=2h:loss"
    " failed=3 failed:loss spike=2 no-improvement no-improvement=0".split(),
)
def test_anything_else_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^rule"):
        parse_rule(text)


def sentences(rule: str, run: RunFacts, since: float = 0.0, now: float = 1000.0) -> list[str]:
    return [event.sentence for event in events(parse_rule(rule), run, since, now)]


def test_the_end_of_a_run_is_one_event_of_its_own_rule() -> None:
    failed = replace(RUN, state=State.FAILED, ended_at=200.0, message="rank 1 on gpu-2: ValueError: x")
    assert sentences("failed", failed) == ["digits failed: rank 1 on gpu-2: ValueError: x"]
    assert sentences("finished", failed) == []
    assert sentences("finished", replace(RUN, state=State.SUCCEEDED, ended_at=200.0)) == ["digits succeeded."]
    assert sentences("failed", failed, since=200.5) == [], "it failed before the rule was set"
    for state in (State.STOPPED, State.QUEUED, State.RUNNING, State.STOPPING):
        run = replace(RUN, state=state, ended_at=200.0)
        assert sentences("failed", run) == sentences("finished", run) == []


def test_an_open_finding_counts_while_the_run_is_live_and_again_when_it_comes_back() -> None:
    hung = replace(RUN, findings=(HUNG,))
    assert sentences("hung", hung, since=160.0) == ["digits: hung: No rank has made a step for 66 s."]
    assert sentences("loss-nan", hung) == []
    assert sentences("hung", replace(hung, state=State.FAILED, ended_at=300.0)) == []
    keys = {event.key for event in events(parse_rule("hung"), hung, 0, 1)}
    again = replace(RUN, findings=(replace(HUNG, first_at=400.0),))
    assert keys.isdisjoint(event.key for event in events(parse_rule("hung"), again, 0, 1))


def test_a_wait_counts_from_its_limit_on() -> None:
    queued = replace(RUN, state=State.QUEUED, waiting_for="2 GPUs on one node")
    assert sentences("waits=10m", queued, now=699.0) == []
    assert sentences("waits=10m", queued, now=700.0) == [
        "digits has waited for 10 min in the queue: 2 GPUs on one node"
    ]
    assert sentences("waits=10m", RUN, now=9999.0) == []


@pytest.mark.parametrize(
    ("outcome", "is_repeatable", "state"),
    [
        (SendOutcome.ACCEPTED, False, DeliveryState.SENT),
        (SendOutcome.REFUSED, True, DeliveryState.UNSENT),
        (SendOutcome.UNAVAILABLE, False, DeliveryState.WAITING),
        (SendOutcome.UNCLEAR, False, DeliveryState.UNSENT),
        (SendOutcome.UNCLEAR, True, DeliveryState.WAITING),
    ],
)
def test_only_what_did_not_arrive_is_sent_again(outcome, is_repeatable, state) -> None:
    assert state_after(outcome, 0.0, 60.0, is_repeatable=is_repeatable) == state
    late = state_after(outcome, 0.0, 90_000.0, is_repeatable=is_repeatable)
    assert late == (DeliveryState.SENT if outcome == SendOutcome.ACCEPTED else DeliveryState.UNSENT)


def test_pauses_grow_to_an_hour() -> None:
    assert [pause_s(tries) for tries in (1, 2, 3, 9, 10, 1000)] == [10, 20, 40, 2560, 3600, 3600]


def test_a_message_names_each_run_with_its_link_and_counts_the_others() -> None:
    items = [MessageItem("abcdefghij", 1.0, f"run {n} failed.") for n in range(25)]
    composed = message("msg_1", "failed", items, "http://gpu-0:8765")
    assert composed.title == "Rankzero: failed (25 events)"
    assert composed.body.startswith("run 0 failed.\nhttp://gpu-0:8765/run?id=abcdefghij\n\nrun 1")
    assert composed.body.endswith("… and 5 more events.")
    assert (len(composed.content["events"]), composed.content["further"]) == (20, 5)


def test_a_message_has_no_secrets_mentions_or_control_characters() -> None:
    sentence = "x failed: https://me:hunter2@host/ \x1b[31m\n<!channel> @everyone Bearer abc"
    (event,) = message("m", "failed", [MessageItem("r", 1.0, sentence)], "u").content["events"]
    assert "hunter2" not in event["sentence"] and "abc" not in event["sentence"]
    assert "<!channel>" not in event["sentence"] and "@everyone" not in event["sentence"]
    assert event["sentence"].isprintable() or "\u200b" in event["sentence"]
    assert "\x1b" not in event["sentence"] and "\n" not in event["sentence"]


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("slack://T1/B2/secret", "slack://********"),
        ("mailtos://me:pw@example.com", "mailtos://********@example.com"),
        (
            "mailtos://me:pw@mail.org?to=anna@lab.org,bo@lab.org",
            "mailtos://********@mail.org to an…@lab.org, bo…@lab.org",
        ),
        ("https://u:p@hooks.example.com/path?key=1", "https://hooks.example.com/********"),
        ("https://[oops", "https://********"),
        ("browser", "browser"),
    ],
)
def test_a_target_shows_nothing_secret(target: str, shown: str) -> None:
    assert masked_target(target) == shown


@pytest.mark.parametrize("target", ["", "slack", "https://a b", "https://a\n", "x://" + "a" * 2000])
def test_a_target_that_is_no_address_is_refused_without_repeating_it(target: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        check_target(target)
    assert "a b" not in str(error.value) and "aaa" not in str(error.value)
