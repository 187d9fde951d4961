"""Hook into torch and count steps, waits and samples: a few microseconds per step."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import Any

from . import (
    collectives,
    device_memory,
    event_writers,
    is_rank_by_environment,
    loggers,
    named_as_probe,
    phases,
    process_state,
    profiling,
    recorder,
    replicas,
    samples,
    start,
)
from .phase_clock import DATA, NOT_BEGUN

OTHERS_BEFORE_SWITCH = 50
"""Steps of another optimizer, without one of the counted one, after which that one is counted."""


def hook_into_optimizers(module: Any) -> None:
    """Hook before and after each step of all optimizers."""
    if is_rank_by_environment():  # from now on: a hang before the first step shows its position
        recorder.start()
    module.register_optimizer_step_post_hook(after_step)
    module.register_optimizer_step_pre_hook(before_step)
    start.note_optimizers(module)
    _hook_in_part("phases", phases.hook_into_passes)


def hook_into_loaders(module: Any) -> None:
    """Hook into waits for batches and loader starts, and into the indices of samples."""
    iterator = module._BaseDataLoaderIter
    iterator.__next__ = _timed_next(iterator.__next__)
    module.DataLoader.__iter__ = _timed_start(module.DataLoader.__iter__)
    iterator._next_index = _noting_index(iterator._next_index)
    iterator._rankzero_epoch = iterator._rankzero_source = None
    iterator._rankzero_noted = iterator  # the sampler's iterator whose indices need no more notes


def hook_into_replicas(module: Any) -> None:
    """Hook into the wrapping of models with DistributedDataParallel."""
    wrapper = module.DistributedDataParallel
    initialise = wrapper.__init__

    @functools.wraps(initialise)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        try:
            replicas.remember(self, module)
            start.reached("model built", again=True)
            recorder.start()
        except Exception as error:
            process_state.current.failed("replicas", error)

    wrapper.__init__ = named_as_probe(__init__)
    _hook_in_part("phases", phases.hook_into_replicas, wrapper)


def _hook_in_part(part: str, hook_in: Callable[..., None], *arguments: Any) -> None:
    """Call `hook_in`; where it fails, this part alone is off."""
    try:
        hook_in(*arguments)
    except Exception as error:
        process_state.current.failed(part, error)


def hook_into_process_groups(module: Any) -> None:
    """Time process groups and collectives, and serve their record before the script starts a thread."""
    start.note_process_groups(module)
    if is_rank_by_environment():
        collectives.serve()
    _hook_in_part("phases", phases.hook_into_collectives, module)
    _hook_in_part("group end", collectives.hook_into_process_groups, module)


def hook_into_writers(module: Any) -> None:
    """Make writers of event files flush often, and note the names of their scalars."""
    event_writers.flush_often(module)
    _hook_in_part("event_writers", event_writers.observe_writers, module)


HOOK_INTO: dict[str, Callable[[Any], None]] = {
    "torch": start.hook_into_torch,
    "torch._dynamo.callback": start.hook_into_compiler,
    "torch.autograd.profiler": profiling.hook_into_profiler,
    "torch.optim.optimizer": hook_into_optimizers,
    "torch.utils.data.dataloader": hook_into_loaders,
    "torch.nn.parallel.distributed": hook_into_replicas,
    "torch.serialization": phases.hook_into_saving,
    collectives.MODULE: hook_into_process_groups,
    "torch.distributed.checkpoint.state_dict_saver": phases.hook_into_saving,
    "safetensors.torch": phases.hook_into_saving,
    "tensorboard.summary.writer.event_file_writer": hook_into_writers,
    "tensorboardX.event_file_writer": hook_into_writers,
    **loggers.HOOK_INTO,
}


def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Check the replicas: the parameters are those of the last step, already synchronised."""
    state = process_state.current
    if state.step == state.check_at and "replicas" not in state.off:
        try:
            replicas.check(optimizer, state)
        except Exception as error:
            state.failed("replicas", error)
    state.clock.begin_optimizer(optimizer)


def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Count an optimizer step as one step, however many micro-steps it took."""
    state = process_state.current
    at = state.clock.end_optimizer(optimizer)
    if "steps" in state.off:
        return
    try:
        if id(optimizer) == state.optimizer_id or _is_counted_from_now(optimizer, state):
            _count_step(state, at)
    except Exception as error:
        state.failed("steps", error)


def _count_step(state: process_state.ProcessState, at: float) -> None:
    state.steps_of_others = 0
    if state.step:
        wait_s = None if state.loader is None else state.wait_s
        state.steps.append((at - state.stepped_at, wait_s, state.samples, state.tokens))
    else:
        start.first_step()
    state.step += 1
    state.stepped_at = at
    state.clock.end_step(state.step, at)
    if state.is_memory_due:
        device_memory.sample(state)
    if state.loader is not None:
        state.wait_s, state.samples, state.tokens = 0.0, None, 0
        state.loader.steps += 1
        if state.epoch is not None:
            state.epoch.steps += 1
    if state.step == state.profile_at:
        profiling.advance(state)


def _is_counted_from_now(optimizer: Any, state: process_state.ProcessState) -> bool:
    """Whether this optimizer is counted from now on: the first one, while it exists and steps."""
    state.steps_of_others += 1
    if state.optimizer() is not None and state.steps_of_others <= OTHERS_BEFORE_SWITCH:
        if state.loader is not None:
            state.loader.steps += 1
        return False
    if not state.optimizer_id:
        state.thread = state.clock.thread = get_ident()
        recorder.start()
        note_parameters(optimizer, state)
    state.optimizer_id, state.optimizer = id(optimizer), weakref.ref(optimizer)
    return True


def _timed_next(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        state = process_state.current
        if state.in_data or "data" in state.off or get_ident() != state.thread:
            return original(self)
        state.in_data = True
        clock = state.clock
        previous = clock.begin(DATA)
        began = perf_counter() if previous == NOT_BEGUN else clock.since
        try:
            data = original(self)
        finally:
            clock.end(previous)
            state.in_data = False
        try:
            if not state.step:
                start.reached("first batch")
            ended = perf_counter() if previous == NOT_BEGUN else clock.since
            samples.add_batch(state, self, data, ended - began)
        except Exception as error:
            state.failed("data", error)
        return data

    return named_as_probe(__next__)  # type: ignore[no-any-return]


def _timed_start(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Count the start of a loader's processes as waiting for data."""

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        state = process_state.current
        if state.in_data or get_ident() != state.thread:
            return original(self)
        state.in_data = True
        previous = state.clock.begin(DATA)
        began = perf_counter()
        try:
            return original(self)
        finally:
            state.clock.end(previous)
            state.in_data = False
            state.start_wait_s = perf_counter() - began

    return named_as_probe(__iter__)  # type: ignore[no-any-return]


def _noting_index(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        index = original(self)
        if self._rankzero_noted is self._sampler_iter:
            return index
        try:
            samples.add_index(process_state.current, self, index)
        except Exception as error:
            process_state.current.failed("samples", error)
        return index

    return named_as_probe(_next_index)  # type: ignore[no-any-return]


# Count the parameters that the training's optimizer steps: the size of the model for estimates of its arithmetic.

SHARDED = "FlatParameter"
"""The parameter of torch's first FSDP: a rank sees its own part alone."""


def note_parameters(optimizer: Any, state: process_state.ProcessState) -> None:
    """Note the number of elements of all parameters; a DTensor counts as a whole."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not any(type(parameter).__name__ == SHARDED for parameter in parameters):
        state.note("parameters", step=state.step, count=sum(int(parameter.numel()) for parameter in parameters))
