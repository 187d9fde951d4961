"""Record checksums that show whether the replicas of a DistributedDataParallel model still agree."""

from __future__ import annotations

import sys
import weakref
from time import perf_counter
from typing import Any

from . import process_state

MAX_MODELS = 4
MAX_PARAMETERS = 8
MAX_NAMES = 10
ELEMENTS = 64
FIRST_CHECKS = (0, 1, 2, 3, 8)
"""Steps after the last model was wrapped at which a check is made; then at every N-th step, N a power of two, so
that ranks with different N still have steps in common."""
UNUSED_CHECKS = 4
SHORTEST_PERIOD = 64
LONGEST_PERIOD = 1 << 16
COST_SHARE = 0.002


class Replica:
    """A few parameters of one model, weakly referenced so that the script can free it."""

    def __init__(self, number: int, model: Any) -> None:
        self.number, self.model = number, weakref.ref(model)
        parameters = _own_parameters(model)
        stride = max(1, len(parameters) // MAX_PARAMETERS)
        self.parameters = [weakref.ref(parameter) for _, parameter in parameters[::stride][:MAX_PARAMETERS]]
        self.pending: tuple[int, Any, Any] | None = None


def remember(model: Any, module: Any) -> None:
    """Record a wrapped model and choose the parameters to check later."""
    state = process_state.current
    number = len(state.replicas)
    state.note(
        "ddp",
        model=number,
        replicas=int(model.process_group.size()),
        find_unused_parameters=bool(model.find_unused_parameters),
        batch_norms=_batch_norms(model),
    )
    if number < MAX_MODELS:
        state.replicas.append(Replica(number, model))
        state.check_at = state.wrapped_at = state.step


def check(optimizer: Any, state: process_state.ProcessState) -> None:
    """Check the replicas before a step, when all ranks should have equal parameters."""
    torch = sys.modules["torch"]
    began = perf_counter()
    for replica in state.replicas:
        if state.step - state.wrapped_at < UNUSED_CHECKS:
            _note_unused(optimizer, replica, state)
        _note_pending_checksum(replica, state)
        if state.step > state.wrapped_at:
            _begin_checksum(torch, replica, state)
            _report_reduction(replica, state)
    state.check_at = _next_check(state, perf_counter() - began)


def _next_check(state: process_state.ProcessState, cost_s: float) -> int:
    if not state.replicas:
        return -1
    for steps in FIRST_CHECKS:
        if state.wrapped_at + steps > state.step:
            return state.wrapped_at + steps
    recent = sorted(seconds for seconds, *_ in list(state.steps)[-20:])
    step_s = recent[len(recent) // 2] if recent else 0.01
    period = SHORTEST_PERIOD
    while period < LONGEST_PERIOD and period * step_s * COST_SHARE < cost_s:
        period *= 2
    return (state.step // period + 1) * period


def _begin_checksum(torch: Any, replica: Replica, state: process_state.ProcessState) -> None:
    """Compute the checksum; on a GPU it is copied asynchronously and read at the next check."""
    model = replica.model()
    parameters = [parameter for parameter in (ref() for ref in replica.parameters) if parameter is not None]
    if model is None or not parameters or getattr(model, "_comm_hooks", None):
        return
    with torch.no_grad():
        device = parameters[0].device
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        ends = [end.to(device).double() for parameter in parameters for end in _ends(parameter.detach())]
        values = torch.cat(ends)
        sums = torch.stack([values.sum(), values.abs().sum()])
        if device.type != "cuda":
            _note_checksum(replica, state, state.step, sums.tolist())
            return
        sums_on_cpu = torch.empty(2, dtype=torch.float64, pin_memory=True)
        sums_on_cpu.copy_(sums, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        replica.pending = (state.step, sums_on_cpu, arrived)


def _note_pending_checksum(replica: Replica, state: process_state.ProcessState) -> None:
    if replica.pending is not None and replica.pending[2].query():
        step, sums_on_cpu, _ = replica.pending
        replica.pending = None
        _note_checksum(replica, state, step, sums_on_cpu.tolist())


def _note_checksum(replica: Replica, state: process_state.ProcessState, step: int, sums: list[float]) -> None:
    state.note("checksum", model=replica.number, step=step, sum=sums[0], size=sums[1])


def _report_reduction(replica: Replica, state: process_state.ProcessState) -> None:
    model = replica.model()
    if model is not None:
        note_reduction(model, replica.number, state)


def _note_unused(optimizer: Any, replica: Replica, state: process_state.ProcessState) -> None:
    """Record parameters that this optimizer is about to step and that have no gradient."""
    model = replica.model()
    if model is None:
        return
    stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    names = [name for name, parameter in _own_parameters(model) if parameter.grad is None and id(parameter) in stepped]
    state.note("unused", model=replica.number, step=state.step, count=len(names), names=names[:MAX_NAMES])


def _ends(tensor: Any) -> list[Any]:
    flat = tensor.reshape(-1) if tensor.is_contiguous() else tensor.flatten()
    return [flat[:ELEMENTS], flat[-ELEMENTS:]]


def _own_parameters(model: Any) -> list[tuple[str, Any]]:
    """Return the trained parameters that every rank holds completely."""
    ignored = set(getattr(model, "parameters_to_ignore", ()))
    return [
        (name, parameter)
        for name, parameter in model.module.named_parameters()
        if parameter.requires_grad and name not in ignored and not hasattr(parameter, "device_mesh")
    ]


def _batch_norms(model: Any) -> int:
    """Count the layers that take their statistics from this rank's batch alone."""
    kinds = sys.modules["torch.nn.modules.batchnorm"]
    return sum(
        isinstance(layer, kinds._BatchNorm) and not isinstance(layer, kinds.SyncBatchNorm) and layer.training
        for layer in model.modules()
    )


# Report what DistributedDataParallel itself counts of its gradient reduction: buckets, times, unused parameters.

SECONDS = {
    "backward_s": "avg_backward_compute_time",
    "communication_s": "avg_backward_comm_time",
    "overlap_s": "avg_backward_compute_comm_overlap_time",
}
"""Means over the passes that torch samples (the first ten, then every hundredth), in nanoseconds there."""
LEAST_SAMPLED = 3


def note_reduction(model: Any, number: int, state: process_state.ProcessState) -> None:
    """Note the data of a wrapped model when torch has sampled another pass."""
    if "reduction" in state.off:
        return
    try:
        data = model._get_ddp_logging_data()
        passes = int(data.get("iteration", 0))
        if passes >= LEAST_SAMPLED and state.reduced_passes.get(number) != passes:
            state.reduced_passes[number] = passes
            state.note("reduction", model=number, step=state.step, **_reduction_of(model, data))
    except Exception as error:
        state.failed("reduction", error)


def _reduction_of(model: Any, data: dict[str, Any]) -> dict[str, Any]:
    is_rebuilt = bool(data.get("has_rebuilt_buckets"))
    sizes = str(data["rebuilt_bucket_sizes" if is_rebuilt else "bucket_sizes"])
    times = {name: int(data.get(key, 0)) / 1e9 for name, key in SECONDS.items()}
    return {
        "buckets_bytes": [int(size) for size in sizes.split(",")],
        "rebuilt": is_rebuilt,
        "unused_bytes": int(data.get("unused_parameter_size", 0)),
        "static_graph": bool(getattr(model, "static_graph", False)),
        **({} if min(times.values()) < 0 or not times["communication_s"] else times),
    }
