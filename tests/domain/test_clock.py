"""The system's clock waits for real; virtual time moves while the test waits, and all that is due keeps its order."""

from __future__ import annotations

import math
import threading
import time

import pytest

from domain.clock import SYSTEM_CLOCK
from tests.virtual_time import VirtualTime


def test_the_systems_clock_has_the_time_of_this_machine():
    before = time.monotonic(), time.time()
    assert before <= (SYSTEM_CLOCK.now(), SYSTEM_CLOCK.wall())
    assert SYSTEM_CLOCK.pause(0.001) is False
    assert SYSTEM_CLOCK.now() - before[0] >= 0.001


def test_a_wait_on_the_systems_clock_ends_when_it_is_woken():
    woken = threading.Event()
    ended = SYSTEM_CLOCK.start("waker", woken.set)
    assert SYSTEM_CLOCK.wait(math.inf, woken) is True
    assert SYSTEM_CLOCK.wait(math.inf, ended) is True
    assert SYSTEM_CLOCK.wait(-math.inf, threading.Event()) is False


def test_virtual_time_stands_still_until_it_is_moved():
    virtual = VirtualTime(wall=1_700_000_000.0)
    began = virtual.now()
    assert virtual.wall() == 1_700_000_000.0
    virtual.advance(60.0)
    assert (virtual.now(), virtual.wall()) == (began + 60.0, 1_700_000_060.0)
    virtual.set_wall(0.0)
    assert (virtual.now(), virtual.wall()) == (began + 60.0, 0.0)


def test_what_is_due_happens_in_its_order_while_somebody_waits():
    virtual, order = VirtualTime(), []
    virtual.call_after(2.0, lambda: order.append(("second", virtual.now())))
    virtual.call_after(1.0, lambda: order.append(("first", virtual.now())))
    virtual.call_after(9.0, lambda: order.append(("later", virtual.now())))
    began = virtual.now()
    virtual.pause(5.0)
    assert order == [("first", began + 1.0), ("second", began + 2.0)]
    assert virtual.now() == began + 5.0


def test_a_wait_on_virtual_time_ends_when_it_is_woken():
    virtual, woken = VirtualTime(), threading.Event()
    virtual.call_after(3.0, woken.set)
    began = virtual.now()
    assert virtual.pause(60.0, woken) is True
    assert virtual.now() == began + 3.0
    assert virtual.wait(math.inf, woken) is True, "it is still set"


def test_threads_on_virtual_time_take_turns_by_the_moments_they_wait_for():
    with VirtualTime() as virtual:
        began, moments, woken = virtual.now(), [], threading.Event()

        def tick(name: str, every_s: float) -> None:
            while True:
                moments.append((name, virtual.now() - began))
                virtual.pause(every_s)

        def wait() -> None:
            moments.append(("woken", virtual.pause(60.0, woken), virtual.now() - began))

        virtual.start("slow", lambda: tick("slow", 2.0))
        virtual.start("quick", lambda: tick("quick", 1.5))
        ended = virtual.start("waiting", wait)
        virtual.call_after(2.5, woken.set)
        virtual.advance(3.0)
    assert moments == [
        ("slow", 0.0), ("quick", 0.0), ("quick", 1.5), ("slow", 2.0), ("woken", True, 2.5), ("quick", 3.0),
    ]  # fmt: skip
    assert ended.is_set()


def test_what_ends_a_thread_on_virtual_time_is_raised_where_it_is_moved():
    with VirtualTime() as virtual:
        virtual.start("broken", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            virtual.advance(1.0)


def test_threads_on_virtual_time_end_with_it():
    with VirtualTime() as virtual:
        ended = virtual.start("endless", lambda: virtual.pause(math.inf))
        never_begun = virtual.start("late", lambda: virtual.pause(math.inf))
        virtual.run_until(lambda: True)
        assert not ended.is_set()
    assert ended.is_set() and never_begun.is_set()


def test_a_condition_that_never_holds_is_told():
    with pytest.raises(AssertionError, match="not within 10 s of virtual time: nothing"):
        VirtualTime().run_until(lambda: False, 10.0, lambda: ": nothing")
    with pytest.raises(AssertionError, match="nothing that is due"):
        VirtualTime().wait(math.inf)
