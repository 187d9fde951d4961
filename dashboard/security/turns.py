"""Turns at costly work: a few at once, and a queue of limited length in which familiar senders go first."""

from __future__ import annotations

import asyncio
import itertools
import threading
from bisect import insort
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from enum import IntEnum
from typing import NamedTuple

from dashboard.security.limits import TryLater


class Standing(IntEnum):
    """How well the sender of a request is known; lower goes first."""

    SIGNED_IN = 0
    KNOWN = 1
    """Somebody has signed in from this address before."""
    STRANGER = 2


class Rank(NamedTuple):
    """The place in a queue: by standing, then by how often the sender has asked lately; of equals the newest first.

    A sender who floods the queue thus comes after one who has just arrived."""

    standing: Standing
    requests: int = 0


FIRST = Rank(Standing.SIGNED_IN)


class NoTurn(TryLater):
    """So many wait, all of them before this one, that it gets no turn."""

    status = 503
    retry_after_s = 5.0

    def __init__(self) -> None:
        super().__init__("Too many people are signing in: wait a few seconds, then try again.")


class Turns:
    """A queue for threads and for tasks of an event loop; one that stops waiting has left it."""

    def __init__(self, at_once: int, most_waiting: int) -> None:
        self._free, self._most_waiting = at_once, most_waiting
        self._waiting: list[tuple[Rank, int, Future[None]]] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count(0, -1)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @contextmanager
    def taken(self, rank: Rank = FIRST) -> Iterator[None]:
        """Hold a turn in a block of a thread, which waits for it. Raises NoTurn."""
        turn = self._ask(rank)
        try:
            turn.result()
            yield
        finally:
            self._leave(turn)

    @asynccontextmanager
    async def awaited(self, rank: Rank) -> AsyncIterator[None]:
        """Hold a turn in a block of a task; one that is cancelled leaves the queue. Raises NoTurn."""
        turn = self._ask(rank)
        try:
            await asyncio.wrap_future(turn)
            yield
        finally:
            self._leave(turn)

    def _ask(self, rank: Rank) -> Future[None]:
        turn: Future[None] = Future()
        with self._lock:
            insort(self._waiting, (rank, next(self._numbers), turn))
            self._give()
            if len(self._waiting) > self._most_waiting:
                last = self._waiting.pop()[2]
                if last.set_running_or_notify_cancel():
                    last.set_exception(NoTurn())
        return turn

    def _give(self) -> None:
        while self._free and self._waiting:
            first = self._waiting.pop(0)[2]
            if first.set_running_or_notify_cancel():
                self._free -= 1
                first.set_result(None)

    def _leave(self, turn: Future[None]) -> None:
        with self._lock:
            self._waiting = [one for one in self._waiting if one[2] is not turn]
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._free += 1
                self._give()
