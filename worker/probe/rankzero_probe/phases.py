"""Hook into the calls that begin and end the phases of a step: copies, forward, backward, collectives, saving."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from . import collectives, named_as_probe, process_state
from .phase_clock import (
    BACKWARD,
    CALLED,
    CHECKPOINT,
    COMM,
    COPY,
    FORWARD,
    NAMES,
    NAMES_ALONE,
    NOT_BEGUN,
    PhaseClock,
)

COLLECTIVES = (
    "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "all_gather_coalesced",
    "all_gather_object", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter", "reduce_scatter_tensor",
    "scatter", "scatter_object_list", "send", "recv",
)  # fmt: skip


def hook_into_saving(module: Any) -> None:
    """Hook into the functions of torch, torch.distributed.checkpoint or safetensors that write a checkpoint."""
    for name in ("save", "save_file"):
        if hasattr(module, name):
            _time(module, name, CHECKPOINT)


def hook_into_collectives(module: Any) -> None:
    """Hook into the collectives that a script calls, and into waiting for them."""
    for name in COLLECTIVES:
        if hasattr(module, name):
            _time(module, name, CALLED)
    _time(module.Work, "wait", CALLED)


def hook_into_replicas(wrapper: Any) -> None:
    """Hook into DistributedDataParallel's forward and into the buffers that it broadcasts before it."""
    _time(wrapper, "_sync_buffers", COMM)
    wrapper.forward = _skipped_by_compiler(_timed_forward(wrapper.forward))


def hook_into_passes() -> None:
    """Hook into copies to a device and into the backward pass; torch is imported."""
    torch = sys.modules["torch"]
    _time(torch.Tensor, "to", COPY)
    _time(torch.Tensor, "cuda", COPY)
    torch.autograd.backward = _skipped_by_compiler(_timed_backward(torch.autograd.backward))


def _time(owner: Any, name: str, phase: int) -> None:
    setattr(owner, name, _skipped_by_compiler(_timed(getattr(owner, name), phase)))


def _timed(original: Callable[..., Any], phase: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        clock = process_state.current.clock
        previous = clock.begin(phase)
        if previous == NOT_BEGUN:
            return original(*args, **kwargs)
        try:
            return original(*args, **kwargs)
        finally:
            clock.end(previous)

    return call


def _timed_forward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Time the forward pass of a training step; in a validation it is no part of one."""
    is_grad_enabled = sys.modules["torch"].is_grad_enabled

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        clock = process_state.current.clock
        if not is_grad_enabled() or not self.training:
            return original(self, *args, **kwargs)
        previous = clock.begin(FORWARD)
        try:
            return original(self, *args, **kwargs)
        finally:
            clock.end(previous)

    return forward


def _timed_backward(original: Callable[..., Any]) -> Callable[..., Any]:
    """Time the backward pass, and apart from it the wait for communication after its last gradient."""

    @functools.wraps(original)
    def backward(
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: Any = None,
        create_graph: Any = False,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        state = process_state.current
        clock = state.clock
        previous = clock.begin(BACKWARD)
        if previous == NOT_BEGUN:
            return original(tensors, grad_tensors, retain_graph, create_graph, *args, **kwargs)
        handle = (
            _call_after_compute(state, tensors, keeps_graph=bool(retain_graph or create_graph))
            if state.replicas
            else None
        )
        try:
            return original(tensors, grad_tensors, retain_graph, create_graph, *args, **kwargs)
        finally:
            clock.end(previous)
            if handle is not None:
                handle.remove()

    return backward


def _call_after_compute(state: process_state.ProcessState, tensors: Any, keeps_graph: bool) -> Any:
    """Have the clock told when all gradients are computed, before DistributedDataParallel waits for the others.

    The engine calls the functions queued during a backward pass in their order, and the first node's hook queues
    ours before any other. Returns the hook's handle, or None where the hook goes with the graph."""
    if "backward" in state.off:
        return None
    try:
        node = (tensors if hasattr(tensors, "grad_fn") else tensors[0]).grad_fn
        if node is None:
            return None
        hooked = _hooked_tensor()
        if keeps_graph:
            return node.register_prehook(hooked._backward_hooks[0])
        node._register_hook_dict(hooked)  # a third of what `register_prehook` and removing its handle take
    except Exception as error:
        state.failed("backward", error)
    return None


@functools.cache
def _hooked_tensor() -> Any:
    """A tensor of ours with the hook that tells the clock; its hooks are lent to each backward pass's first node."""
    torch = sys.modules["torch"]
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback
    note_backward = collectives.noting_backward(torch._C)

    def queue_end_of_compute(gradients: Any) -> None:
        try:
            note_backward()
            queue_callback(process_state.current.clock.end_compute)
        except Exception as error:
            process_state.current.failed("backward", error)

    hooked = torch.empty((), device="cpu", requires_grad=True)
    hooked._backward_hooks = {0: named_as_probe(queue_end_of_compute)}
    return hooked


def _skipped_by_compiler(function: Any) -> Any:
    """Keep torch.compile from compiling the probe's own frame; the original's is compiled as without the probe."""
    skip_frame(named_as_probe(function).__code__)
    return function


def skip_frame(code: Any) -> None:
    """Tell torch.compile to run frames of this code as they are; torch before 2.7 has one function for it."""
    compiler: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    if hasattr(compiler, "skip_code"):
        compiler.skip_code(code)
    elif hasattr(compiler, "set_code_exec_strategy"):
        action = compiler._FrameAction
        compiler.set_code_exec_strategy(code, compiler._FrameExecStrategy(action.SKIP, action.DEFAULT))


for _method in vars(PhaseClock).values():
    if hasattr(_method, "__code__"):
        skip_frame(_method.__code__)


# Add up the phases of a rank's steps for the recorder: totals, so that any two records give the mean between them.

AT_FIRST_S = 60.0
ADD_EVERY_S = 5.0
"""Totals are written with every line at first, later every so often: a chart of an hour shows no more."""


class PhaseRecord:
    """Seconds in each phase since the first step. Called by the recorder's thread."""

    def __init__(self) -> None:
        self._written_step = 0
        self._began_at = self._written_at = 0.0
        self._cpu_wait_s: float | None = None

    def figures(self, state: process_state.ProcessState, world_size: int, is_last: bool) -> dict[str, Any]:
        """Return the totals under the key `phases` when they are due; phases that never occurred are left out."""
        if "phases" in state.off:
            return {}
        try:
            step, seconds = state.clock.ended
            if not self._is_due(step, time.monotonic(), is_last):
                return {}
            totals = _totals(seconds, NAMES if world_size > 1 else NAMES_ALONE)
            return {"phases": {"step": step, **totals, **self._cpu_wait(state)}}
        except Exception as error:
            state.failed("phases", error)
            return {}

    def _is_due(self, step: int, now: float, is_last: bool) -> bool:
        if step == self._written_step:
            return False
        self._began_at = self._began_at or now
        is_early = now - self._began_at < AT_FIRST_S
        if not (is_last or is_early or now - self._written_at > ADD_EVERY_S - 0.5):
            return False
        self._written_at, self._written_step = now, step
        return True

    def _cpu_wait(self, state: process_state.ProcessState) -> dict[str, float]:
        cpu_wait_s = _cpu_wait_s(state.thread)
        if cpu_wait_s is None:
            return {}
        self._cpu_wait_s = cpu_wait_s if self._cpu_wait_s is None else self._cpu_wait_s
        return {"cpu_wait_s": round(cpu_wait_s - self._cpu_wait_s, 6)}


def _totals(seconds: list[float], names: dict[str, tuple[int, ...]]) -> dict[str, float]:
    totals = {name: round(sum(seconds[phase] for phase in phases), 6) for name, phases in names.items()}
    return {name: total for name, total in totals.items() if total}


def _cpu_wait_s(thread: int | None) -> float | None:
    """Return the seconds for which the thread was ready and no CPU was free for it; None where Linux hides them."""
    tasks = [running.native_id for running in threading.enumerate() if running.ident == thread]
    if thread == threading.main_thread().ident:
        tasks = [os.getpid()]  # after a fork Python still has the number of the parent's thread
    try:
        with open(f"/proc/self/task/{tasks[0]}/schedstat") as file:  # noqa: PTH123 - pathlib costs 5 ms
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None
