"""The worker looks again soon after an end, and rests otherwise."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from tests.virtual_time import VirtualTime
from worker.trainings.trainings import (
    CHECKPOINTS_PAUSE_S,
    HURRIED_PAUSE_S,
    HURRY_S,
    IDLE_CORES,
    IDLE_PAUSE_S,
    LONGEST_PAUSE_S,
    PAUSE_PER_STEP,
    PAUSE_S,
    SENT_EVERY_S,
    WATCHED_PAUSE_S,
    LoopPauses,
)

ONE, OTHER = (7, 0), (8, 0)


def test_after_an_end_the_steps_follow_soon_for_a_moment_only():
    pauses = LoopPauses()
    assert pauses.pause_s(0.0, 0.0, [], is_watched=False) == PAUSE_S
    assert pauses.pause_s(1.0, 0.0, [ONE], is_watched=False) == HURRIED_PAUSE_S
    assert pauses.pause_s(0.9 + HURRY_S, 0.0, [ONE], is_watched=False) == HURRIED_PAUSE_S
    assert pauses.pause_s(1.1 + HURRY_S, 0.0, [ONE], is_watched=False) == PAUSE_S, "the server may be away for hours"
    assert pauses.pause_s(20.0, 0.0, [ONE, OTHER], is_watched=False) == HURRIED_PAUSE_S
    assert pauses.pause_s(21.0, 0.0, [], is_watched=False) == HURRIED_PAUSE_S
    assert pauses.pause_s(40.0, 0.0, [], is_watched=False) == PAUSE_S


def test_without_attempts_they_rest_longer():
    assert LoopPauses().pause_s(0.0, 0.0, [], is_watched=False, is_idle=True) == IDLE_PAUSE_S


def test_while_somebody_watches_the_steps_follow_soon():
    assert LoopPauses().pause_s(0.0, 0.0, [], is_watched=True, idle_cores=IDLE_CORES) == HURRIED_PAUSE_S


def test_what_follows_soon_after_points_waits_to_go_with_more():
    pauses = LoopPauses()
    assert pauses.pause_s(0.0, 0.0, [], is_watched=True, idle_cores=1.0, since_sent_s=0.01) == SENT_EVERY_S - 0.01
    assert pauses.pause_s(0.0, 0.0, [], is_watched=True, idle_cores=1.0, since_sent_s=SENT_EVERY_S) == HURRIED_PAUSE_S
    assert pauses.pause_s(0.0, 0.0, [ONE], is_watched=True, idle_cores=1.0, since_sent_s=0.0) == HURRIED_PAUSE_S


def test_where_trainings_use_all_cores_watching_takes_four_steps_a_second():
    pauses = LoopPauses()
    assert pauses.pause_s(0.0, 0.001, [], is_watched=True) == WATCHED_PAUSE_S
    assert pauses.pause_s(0.0, 0.001, [ONE], is_watched=True) == HURRIED_PAUSE_S, "the next attempt waits for the end"


def test_the_longer_a_step_took_the_longer_is_its_pause():
    assert LoopPauses().pause_s(0.0, 0.1, [], is_watched=True) == PAUSE_PER_STEP * 0.1
    assert LoopPauses().pause_s(0.0, 0.001, [], is_watched=True, idle_cores=IDLE_CORES) == HURRIED_PAUSE_S
    assert LoopPauses().pause_s(0.0, 30.0, [], is_watched=True) == LONGEST_PAUSE_S
    assert LoopPauses().pause_s(0.0, 0.1, [], is_watched=True, idle_cores=IDLE_CORES) == 0.1


def test_a_backlog_leaves_the_cores_to_ranks_until_they_end_or_news_come():
    with VirtualTime() as time:
        pauses, began = LoopPauses(time), time.now()
        pauses.leave_cores(60.0, lambda: time.now() < began + 5.0, threading.Event())
        assert time.now() == pytest.approx(began + 5.0)
        woken = threading.Event()
        time.call_after(2.0, woken.set)
        pauses.leave_cores(60.0, lambda: True, woken)
        assert time.now() == pytest.approx(began + 7.0)
        pauses.leave_cores(3.0, lambda: True, threading.Event())
        assert time.now() == pytest.approx(began + 10.0)


def test_an_end_wakes_the_copying_and_then_the_sending():
    with VirtualTime() as time:
        pauses, woken = LoopPauses(time), []

        def wait_for(name):
            getattr(pauses, f"wait_to_{name}")()
            woken.append((name, time.now()))

        for name in ("send", "copy"):
            time.start(name, partial(wait_for, name))
        time.advance(0.25)
        pauses.pause_s(0.0, 0.0, [ONE], is_watched=False)
        ended_at = time.now()
        time.advance(CHECKPOINTS_PAUSE_S)
    assert woken == [("copy", ended_at), ("send", ended_at)]
