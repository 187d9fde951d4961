"""Turns of the scheduler are shared by all who wait, and each waits for one that began after it asked."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from dashboard.service import scheduler
from dashboard.service.scheduler import QueueTurns
from tests.end_to_end.product import wait_for

WAIT_S = 60


class SlowTurns:
    """Turns that last until they are let go, and the asked-for changes that each has seen."""

    def __init__(self) -> None:
        self.changes: list[int] = []
        self.seen: list[list[int]] = []
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def take(self) -> None:
        self.seen.append(list(self.changes))
        self.begun.release()
        assert self.go.acquire(timeout=WAIT_S)


def test_all_who_ask_during_a_turn_share_the_next_one():
    slow = SlowTurns()
    turns = QueueTurns(slow.take)

    def change(number: int) -> int:
        slow.changes.append(number)
        turns.wait()
        return len(slow.seen)

    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(change, 0)
        assert slow.begun.acquire(timeout=WAIT_S)
        others = [threads.submit(change, number) for number in range(1, 9)]
        wait_for(lambda: turns.asked == 9, "all to ask")
        slow.go.release(2)
        assert first.result(WAIT_S) <= 2
        assert {other.result(WAIT_S) for other in others} == {2}
    assert slow.seen[0] == [0] and sorted(slow.seen[1]) == [*range(9)]


def test_who_waits_for_a_turn_that_fails_takes_another():
    outcomes = iter([RuntimeError("the store is away"), None])
    taken = []

    def take() -> None:
        outcome = next(outcomes)
        taken.append(outcome)
        if outcome:
            raise outcome

    turns = QueueTurns(take)
    with pytest.raises(RuntimeError, match="away"):
        turns.wait()
    turns.wait()
    assert len(taken) == 2


def test_a_turn_that_nobody_waits_for_comes_only_after_a_pause(monkeypatch):
    monkeypatch.setattr(scheduler, "SHORT_SCHEDULING_S", -1.0)
    monkeypatch.setattr(scheduler, "SCHEDULING_SHARE", 1e-12)
    taken = []
    turns = QueueTurns(lambda: taken.append(len(range(10_000))))
    turns.wait(only_if_due=True)
    turns.wait(only_if_due=True)
    assert len(taken) == 1
    turns.wait()
    assert len(taken) == 2
