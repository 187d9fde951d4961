"""Time as a parameter: no other module reads a clock or sleeps, so that tests can hand out virtual time."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable


class Clock(ABC):
    """Tells the time, waits for it, and starts the threads that wait for it."""

    @abstractmethod
    def now(self) -> float:
        """Seconds that never go back, counted from no particular moment."""

    @abstractmethod
    def wall(self) -> float:
        """Seconds since the epoch, as the machine has them: they jump when somebody sets its clock."""

    @abstractmethod
    def wait(self, until: float, woken: threading.Event | None = None) -> bool:
        """Wait until `until` (seconds of `now`) or until `woken` is set; return whether it is set."""

    @abstractmethod
    def start(self, name: str, work: Callable[[], object]) -> threading.Event:
        """Do `work` in a thread of its own, which ends with the process; return an event set at its end."""

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling coroutine for so many seconds of its event loop."""
        import asyncio  # takes a supervisor's start as long as all its other imports together

        await asyncio.sleep(seconds)

    def pause(self, seconds: float, woken: threading.Event | None = None) -> bool:
        """Wait for so many seconds or until `woken` is set; return whether it is set."""
        return self.wait(self.now() + seconds, woken)


class SystemClock(Clock):
    """This machine's time."""

    def now(self) -> float:
        """Seconds of CLOCK_MONOTONIC, the same in all processes of this machine."""
        return time.monotonic()

    def wall(self) -> float:
        """Seconds since the epoch, by this machine's clock."""
        return time.time()

    def wait(self, until: float, woken: threading.Event | None = None) -> bool:
        """Block this thread until then."""
        left_s = min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
        if woken is not None:
            return woken.wait(left_s)
        time.sleep(left_s)
        return False

    def start(self, name: str, work: Callable[[], object]) -> threading.Event:
        """Start the thread at once."""
        ended = threading.Event()

        def run() -> None:
            try:
                work()
            finally:
                ended.set()

        threading.Thread(target=run, name=name, daemon=True).start()
        return ended


SYSTEM_CLOCK = SystemClock()
"""The clock of the programs, and the default wherever a clock is a parameter."""
