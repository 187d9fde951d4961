"""Whether the copies of a DistributedDataParallel model are still alike, by a few numbers of each."""

from __future__ import annotations

import sys
import weakref
from time import perf_counter
from typing import Any

from . import seen

MAX_MODELS = 4
MAX_PARAMETERS = 8
MAX_NAMES = 10
ELEMENTS = 64
FIRST_CHECKS = (0, 1, 2, 3, 8)
"""Steps since the last model was wrapped, after which there is a check; then after every N-th step, N a power
of two, so that ranks with different N still have steps in common."""
UNUSED_CHECKS = 4
SHORTEST_PERIOD = 64
LONGEST_PERIOD = 1 << 16
COST_SHARE = 0.002


class Replica:
    """One model's few parameters, held so loosely that it can go when its script lets it go."""

    def __init__(self, number: int, model: Any) -> None:
        self.number, self.model = number, weakref.ref(model)
        parameters = _own_parameters(model)
        stride = max(1, len(parameters) // MAX_PARAMETERS)
        self.parameters = [weakref.ref(each) for _, each in parameters[::stride][:MAX_PARAMETERS]]
        self.on_its_way: tuple[int, Any, Any] | None = None


def remember(model: Any, module: Any) -> None:
    """A model was wrapped: what is known of it then, and what will be looked at later."""
    now = seen.current
    number = len(now.replicas)
    now.note(
        "ddp",
        model=number,
        replicas=int(model.process_group.size()),
        find_unused_parameters=bool(model.find_unused_parameters),
        batch_norms=_batch_norms(model),
    )
    if number < MAX_MODELS:
        now.replicas.append(Replica(number, model))
        now.check_at = now.wrapped_at = now.step


def check(optimizer: Any, now: seen.Seen) -> None:
    """Before a step: the parameters are those that all ranks agreed on after the last one."""
    torch = sys.modules["torch"]
    began = perf_counter()
    for replica in now.replicas:
        if now.step - now.wrapped_at < UNUSED_CHECKS:
            _note_unused(optimizer, replica, now)
        _send_what_came(replica, now)
        if now.step > now.wrapped_at:
            _begin_checksum(torch, replica, now)
    now.check_at = _next_check(now, perf_counter() - began)


def _next_check(now: seen.Seen, cost_s: float) -> int:
    if not now.replicas:
        return -1
    for steps in FIRST_CHECKS:
        if now.wrapped_at + steps > now.step:
            return now.wrapped_at + steps
    recent = sorted(list(now.intervals_s)[-20:])
    step_s = recent[len(recent) // 2] if recent else 0.01
    period = SHORTEST_PERIOD
    while period < LONGEST_PERIOD and period * step_s * COST_SHARE < cost_s:
        period *= 2
    return (now.step // period + 1) * period


def _begin_checksum(torch: Any, replica: Replica, now: seen.Seen) -> None:
    """On a GPU the sums travel by themselves and are read at the next check: nobody waits for them."""
    model = replica.model()
    parameters = [each for each in (ref() for ref in replica.parameters) if each is not None]
    if model is None or not parameters or getattr(model, "_comm_hooks", None):
        return
    with torch.no_grad():
        device = parameters[0].device
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return
        ends = [part.to(device).double() for each in parameters for part in _ends(each.detach())]
        values = torch.cat(ends)
        sums = torch.stack([values.sum(), values.abs().sum()])
        if device.type != "cuda":
            _note_checksum(replica, now, now.step, sums.tolist())
            return
        host = torch.empty(2, dtype=torch.float64, pin_memory=True)
        host.copy_(sums, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record()
        replica.on_its_way = (now.step, host, arrived)


def _send_what_came(replica: Replica, now: seen.Seen) -> None:
    if replica.on_its_way is not None and replica.on_its_way[2].query():
        step, host, _ = replica.on_its_way
        replica.on_its_way = None
        _note_checksum(replica, now, step, host.tolist())


def _note_checksum(replica: Replica, now: seen.Seen, step: int, sums: list[float]) -> None:
    now.note("checksum", model=replica.number, step=step, sum=sums[0], size=sums[1])


def _note_unused(optimizer: Any, replica: Replica, now: seen.Seen) -> None:
    """Parameters that this optimizer is about to step and that no loss has reached."""
    model = replica.model()
    if model is None:
        return
    stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
    names = [name for name, each in _own_parameters(model) if each.grad is None and id(each) in stepped]
    now.note("unused", model=replica.number, step=now.step, count=len(names), names=names[:MAX_NAMES])


def _ends(tensor: Any) -> list[Any]:
    flat = tensor.reshape(-1) if tensor.is_contiguous() else tensor.flatten()
    return [flat[:ELEMENTS], flat[-ELEMENTS:]]


def _own_parameters(model: Any) -> list[tuple[str, Any]]:
    """Trained parameters that every rank holds whole."""
    ignored = set(getattr(model, "parameters_to_ignore", ()))
    return [
        (name, each)
        for name, each in model.module.named_parameters()
        if each.requires_grad and name not in ignored and not hasattr(each, "device_mesh")
    ]


def _batch_norms(model: Any) -> int:
    """How many layers take their statistics from this rank's batch alone."""
    kinds = sys.modules["torch.nn.modules.batchnorm"]
    return sum(
        isinstance(each, kinds._BatchNorm) and not isinstance(each, kinds.SyncBatchNorm) and each.training
        for each in model.modules()
    )
