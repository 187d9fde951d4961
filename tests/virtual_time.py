"""Virtual time: it stands still until a test moves it, and then does everything that falls due, in order."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from domain.clock import Clock

T = TypeVar("T")
HOUR_S = 3600.0


@dataclass(eq=False)
class _Due:
    """A thread or an action that is due at a moment, or as soon as an event is set."""

    at: float
    number: int
    go_on: Callable[[], None]
    woken: threading.Event | None = None


class VirtualTime(Clock):
    """A clock that only the test moves. Its threads run one at a time, each until it waits again, so that the same test
    always takes the same course.

    Use it as a context manager, which ends its threads."""

    def __init__(self, wall: float | None = None) -> None:
        """`wall`: seconds since the epoch at the beginning; by default the machine's, as files have it."""
        self._now = 1000.0
        self._wall_from = (time.time() if wall is None else wall) - self._now
        self._agenda: list[_Due] = []
        self._count = 0
        self._turn = threading.Semaphore(0)
        """Released by the thread that ran, once it waits or ends."""
        self._own = threading.current_thread()
        self._failure: BaseException | None = None
        self._is_over = False

    def __enter__(self) -> VirtualTime:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        while self._agenda:
            self._agenda.pop().go_on()

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now + self._wall_from

    def set_wall(self, wall: float) -> None:
        """Set the wall clock, as an administrator may."""
        self._wall_from = wall - self._now

    def wait(self, until: float, woken: threading.Event | None = None) -> bool:
        if threading.current_thread() is not self._own:
            self._wait_in_thread(until, woken)
            return _is_set(woken)
        while not _is_set(woken) and self._do_next(until):
            pass
        if _is_set(woken):
            return True
        assert until < math.inf, "nothing that is due ends this wait"
        self._now = max(self._now, until)
        return False

    def start(self, name: str, work: Callable[[], object]) -> threading.Event:
        ended = threading.Event()
        baton = threading.Semaphore(0)

        def run() -> None:
            baton.acquire()
            try:
                if not self._is_over:
                    work()
            except _Over:
                pass
            except BaseException as error:
                self._failure = error
            finally:
                ended.set()
                self._turn.release()

        threading.Thread(target=run, name=name, daemon=True).start()
        self._enter(self._now, lambda: self._pass_to(baton))
        return ended

    def advance(self, seconds: float) -> None:
        """Move the time by so much."""
        self.wait(self._now + seconds)

    def run_until(self, condition: Callable[[], T], limit_s: float = HOUR_S, otherwise: Callable[[], str] = str) -> T:
        """Move the time to the first moment at which the condition holds; returns its value.

        `otherwise`: what to print where it does not hold within `limit_s`."""
        until = self._now + limit_s
        while not (result := condition()):
            if not self._do_next(until):
                raise AssertionError(f"not within {limit_s:g} s of virtual time{otherwise()}")
        return result

    def call_after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do this after so many seconds; two actions of one moment happen in the order of their calls."""
        self._enter(self._now + seconds, lambda: action() and None)

    def _enter(self, at: float, go_on: Callable[[], None], woken: threading.Event | None = None) -> None:
        self._count += 1
        self._agenda.append(_Due(at, self._count, go_on, woken))

    def _do_next(self, until: float) -> bool:
        """Do the first thing that is due until then; return whether there was one."""
        due = min(self._agenda, key=self._order, default=None)
        if due is None or self._order(due)[0] > until:
            return False
        self._now = max(self._now, self._order(due)[0])
        self._agenda.remove(due)
        due.go_on()
        return True

    def _order(self, due: _Due) -> tuple[float, int]:
        return (self._now if _is_set(due.woken) else max(self._now, due.at)), due.number

    def _wait_in_thread(self, until: float, woken: threading.Event | None) -> None:
        baton = threading.Semaphore(0)
        self._enter(until, lambda: self._pass_to(baton), woken)
        self._turn.release()
        baton.acquire()
        if self._is_over:
            raise _Over

    def _pass_to(self, baton: threading.Semaphore) -> None:
        """Run a thread until it waits; raises what ended it."""
        baton.release()
        self._turn.acquire()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


class _Over(BaseException):
    """Ends a thread with its test."""


def _is_set(event: threading.Event | None) -> bool:
    return event is not None and event.is_set()
