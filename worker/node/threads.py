"""Starts threads that survive their own internal errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from domain.clock import SYSTEM_CLOCK, Clock

log = logging.getLogger("worker")


def start_thread(name: str, loop: Callable[[], None], clock: Clock = SYSTEM_CLOCK) -> threading.Event:
    """Start a thread whose loop continues after an internal error: trainings matter more than a clean exit.

    Returns an event that is set when the loop has ended."""

    def run() -> None:
        while True:
            try:
                return loop()
            except Exception:
                log.exception("internal error of the worker (%s); it continues", name)
                clock.pause(1.0)

    return clock.start(name, run)
