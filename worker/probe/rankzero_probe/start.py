"""Note when each phase of a rank's start ends: torch imported, process group, model, first batch, first step."""

from __future__ import annotations

import functools
import time
import weakref
from typing import Any

from . import device_memory, named_as_probe, process_state, recorder, reruns

EVENT = "start"


def reached(phase: str, *, again: bool = False) -> None:
    """Note the end of a phase before the first step; only the first time, unless `again`."""
    state = process_state.current
    if state.step or (phase in state.start_phases and not again):
        return
    state.start_phases.add(phase)
    state.note(EVENT, phase=phase)


def first_step() -> None:
    """Note the first step, and the seconds of it that went into compiling."""
    state = process_state.current
    reached("first step")
    if state.compiled_s:
        state.note(EVENT, phase="compile", began=round(state.compile_began, 3), seconds=state.compiled_s)


def hook_into_torch(module: Any) -> None:
    """Note that torch is imported, and wait for the first use of a GPU: runs after the whole package was executed."""
    reached("torch imported")
    device_memory.hook_into_torch(module)


def note_process_groups(module: Any) -> None:
    """Note the end of each `init_process_group` before the first step: who joins one is a rank."""
    initialise = module.init_process_group

    @functools.wraps(initialise)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        reruns.is_rerun(reruns.JOINS)  # it may wait in there for ever
        group = initialise(*args, **kwargs)
        reached("rendezvous", again=True)
        recorder.start()
        return group

    module.init_process_group = named_as_probe(init_process_group)


def note_optimizers(module: Any) -> None:
    """Note each optimizer: before the first step the model's parameters exist by then, later it says what they take."""
    initialise = module.Optimizer.__init__

    @functools.wraps(initialise)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        reached("model built", again=True)
        process_state.current.optimizers.append(weakref.ref(self))

    module.Optimizer.__init__ = named_as_probe(__init__)


def hook_into_compiler(module: Any) -> None:
    """Add up the seconds in which torch.compile works before the first step."""
    module.callback_handler.register_start_callback(_compile_begins)
    module.callback_handler.register_end_callback(_compile_ends)


def _compile_begins(*_: Any) -> None:
    state = process_state.current
    state.compiling_since = time.time()
    state.compile_began = state.compile_began or state.compiling_since


def _compile_ends(*_: Any) -> None:
    state = process_state.current
    if not state.step and state.compiling_since:
        state.compiled_s = round(state.compiled_s + time.time() - state.compiling_since, 3)
    state.compiling_since = 0.0
