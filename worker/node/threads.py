"""Starts threads that survive their own internal errors."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger("worker")


def start_thread(name: str, loop: Callable[[], None]) -> threading.Thread:
    """Start a thread whose loop continues after an internal error: trainings matter more than a clean exit."""

    def run() -> None:
        while True:
            try:
                return loop()
            except Exception:
                log.exception("internal error of the worker (%s); it continues", name)
                time.sleep(1.0)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
