"""Switch the probe on and off in a process that runs already: a script or a notebook that watches itself."""

from __future__ import annotations

from collections.abc import Callable

from . import collectives, device_memory, process_state, profiling, recorder, switch_off, switch_on
from .loggers import own, records, wandb


def begin() -> None:
    """Observe this process from now on, with what it imported before."""
    process_state.reset()
    records.begin_anew()
    own.begin_anew()
    switch_on()


def end() -> None:
    """End the records of this process, which goes on: from now on the hooks only call what they hook into."""
    switch_off()
    state = process_state.current
    for part in (wandb.complete_all, records.write_remaining, recorder.stop, lambda: device_memory.stop(state)):
        _attempt(part)
    process_state.switch_off()
    collectives.forget()
    profiling.forget()


def _attempt(part: Callable[[], None]) -> None:
    try:
        part()
    except Exception as error:
        process_state.current.failed("end", error)
