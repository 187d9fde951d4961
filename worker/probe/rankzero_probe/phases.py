"""Hook into the calls that begin and end the phases of a step: copies, forward, backward, collectives, saving."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from . import group_end, named_as_probe, process_state
from .phase_clock import BACKWARD, CALLED, CHECKPOINT, COMM, COPY, FORWARD, NOT_BEGUN, PhaseClock

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
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        clock = process_state.current.clock
        previous = clock.begin(BACKWARD)
        if previous == NOT_BEGUN:
            return original(tensors, *args, **kwargs)
        handle = _call_after_compute(tensors)
        try:
            return original(tensors, *args, **kwargs)
        finally:
            clock.end(previous)
            if handle is not None:
                handle.remove()

    return backward


def _call_after_compute(tensors: Any) -> Any:
    """Have the clock told when all gradients are computed, before DistributedDataParallel waits for the others.

    The engine calls the functions queued during a backward pass in their order, and the first node's hook queues
    ours before any other. Returns the hook's handle, or None where nothing is to be told apart."""
    state = process_state.current
    if not state.replicas or "backward" in state.off:
        return None
    try:
        first = tensors if hasattr(tensors, "grad_fn") else tensors[0]
        return None if first.grad_fn is None else first.grad_fn.register_prehook(_queue_end_of_compute)
    except Exception as error:
        state.failed("backward", error)
        return None


def _queue_end_of_compute(gradients: Any) -> None:
    try:
        group_end.note_backward()
        engine = sys.modules["torch"].autograd.Variable._execution_engine
        engine.queue_callback(process_state.current.clock.end_compute)
    except Exception as error:
        process_state.current.failed("backward", error)


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
