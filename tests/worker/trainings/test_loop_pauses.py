"""The worker looks again soon after an end, and rests otherwise."""

from __future__ import annotations

import threading

from worker.trainings.trainings import (
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
    looks, woken = iter([True, True, False]), threading.Event()
    LoopPauses().leave_cores(3600.0, lambda: next(looks), woken)
    assert list(looks) == []
    woken.set()
    LoopPauses().leave_cores(3600.0, lambda: True, woken)
    LoopPauses().leave_cores(0.0, lambda: True, threading.Event())


def test_an_end_wakes_the_copying_and_then_the_sending(monkeypatch):
    monkeypatch.setattr("worker.trainings.trainings.CHECKPOINTS_PAUSE_S", 3600.0)
    pauses, woken = LoopPauses(), []

    def wait_for(name):
        getattr(pauses, f"wait_to_{name}")()
        woken.append(name)

    threads = [threading.Thread(target=wait_for, args=(name,), daemon=True) for name in ("send", "copy")]
    for thread in threads:
        thread.start()
    pauses.pause_s(0.0, 0.0, [ONE], is_watched=False)
    for thread in threads:
        thread.join(300)
    assert sorted(woken) == ["copy", "send"]
