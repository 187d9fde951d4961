"""Hooks into torch, and what each call of them counts: a few microseconds per step."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import Any

from . import buffered, is_rank_by_environment, named_as_probe, recorder, replicas, samples, seen

OTHERS_BEFORE_SWITCH = 50
"""Another optimizer that steps this often while the counted one rests takes over."""


def hook_into_optimizers(module: Any) -> None:
    """Steps of all optimizers, before and after."""
    if is_rank_by_environment():  # seen from here on, so that a hang before the first step has a place
        recorder.start()
    module.register_optimizer_step_post_hook(after_step)
    module.register_optimizer_step_pre_hook(before_step)


def hook_into_loaders(module: Any) -> None:
    """The wait for each batch and for a loader's start, and which samples are read."""
    iterator = module._BaseDataLoaderIter
    iterator.__next__ = _timed_next(iterator.__next__)
    module.DataLoader.__iter__ = _timed_start(module.DataLoader.__iter__)
    iterator._next_index = _noting_index(iterator._next_index)


def hook_into_replicas(module: Any) -> None:
    """Each model that is given to DistributedDataParallel."""
    wrapper = module.DistributedDataParallel
    initialise = wrapper.__init__

    @functools.wraps(initialise)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        initialise(self, *args, **kwargs)
        try:
            replicas.remember(self, module)
            recorder.start()
        except Exception as error:
            seen.current.failed("replicas", error)

    wrapper.__init__ = named_as_probe(__init__)


HOOK_INTO: dict[str, Callable[[Any], None]] = {
    "torch.optim.optimizer": hook_into_optimizers,
    "torch.utils.data.dataloader": hook_into_loaders,
    "torch.nn.parallel.distributed": hook_into_replicas,
    "tensorboard.summary.writer.event_file_writer": buffered.hook_into_writers,
    "tensorboardX.event_file_writer": buffered.hook_into_writers,
}


def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """The parameters are those of the last step, synchronised by whatever synchronises them."""
    now = seen.current
    if now.step == now.check_at and "replicas" not in now.off:
        try:
            replicas.check(optimizer, now)
        except Exception as error:
            now.failed("replicas", error)


def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    """One optimizer step is one step, however many micro-steps it took."""
    now = seen.current
    if "steps" in now.off:
        return
    try:
        if id(optimizer) == now.optimizer_id or _is_counted_from_now(optimizer, now):
            _count_step(now, perf_counter())
    except Exception as error:
        now.failed("steps", error)


def _count_step(now: seen.Seen, at: float) -> None:
    now.steps_of_others = 0
    if now.step:
        now.intervals_s.append(at - now.stepped_at)
        if now.loader is not None:
            now.waits_s.append(now.wait_s)
            if now.samples_waiting is not None:
                now.samples.append(now.samples_waiting)
    now.step += 1
    now.stepped_at = at
    if now.loader is not None:
        now.wait_s, now.samples_waiting = 0.0, None
        now.loader.steps += 1
        if now.epoch is not None:
            now.epoch.steps += 1


def _is_counted_from_now(optimizer: Any, now: seen.Seen) -> bool:
    """Of several optimizers the first is counted, as long as it lives and steps at all."""
    now.steps_of_others += 1
    if now.optimizer() is not None and now.steps_of_others <= OTHERS_BEFORE_SWITCH:
        if now.loader is not None:
            now.loader.steps += 1
        return False
    if not now.optimizer_id:
        now.thread = get_ident()
        recorder.start()
    now.optimizer_id, now.optimizer = id(optimizer), weakref.ref(optimizer)
    return True


def _timed_next(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        now = seen.current
        if now.in_data or "data" in now.off or get_ident() != now.thread:
            return original(self)
        now.in_data = True
        began = perf_counter()
        try:
            data = original(self)
        finally:
            now.in_data = False
        try:
            samples.batch_came(now, self, data, perf_counter() - began)
        except Exception as error:
            now.failed("data", error)
        return data

    return named_as_probe(__next__)  # type: ignore[no-any-return]


def _timed_start(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Starting a loader's processes is waiting for data, too."""

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:
        now = seen.current
        if now.in_data or get_ident() != now.thread:
            return original(self)
        now.in_data = True
        began = perf_counter()
        try:
            return original(self)
        finally:
            now.in_data = False
            now.start_wait_s = perf_counter() - began

    return named_as_probe(__iter__)  # type: ignore[no-any-return]


def _noting_index(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(original)
    def _next_index(self: Any) -> Any:
        index = original(self)
        epoch = self.__dict__.get("_rankzero_epoch")
        if epoch is not None and epoch.is_full and self._rankzero_source is self._sampler_iter:
            return index
        try:
            samples.index_came(seen.current, self, epoch, index)
        except Exception as error:
            seen.current.failed("samples", error)
        return index

    return named_as_probe(_next_index)  # type: ignore[no-any-return]
