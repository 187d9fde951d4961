"""One core for the servers that are measured, the others for the clients that ask them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil


@contextmanager
def one_core() -> Iterator[None]:
    """Processes started inside share one core; afterwards this one keeps to the others, where there are any."""
    every = os.sched_getaffinity(0)
    own = {min(every)}
    os.sched_setaffinity(0, own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, every - own or every)


def processor_s(process: psutil.Process) -> float:
    """Seconds of processor time of all its threads, also of those that have ended."""
    times = process.cpu_times()
    return float(times.user + times.system)
