"""The overview of one rank's trace, as torch's profiler writes it: where the recorded steps spent their time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from domain.profiles.records import MAX_FRAMES, DeviceTimes, Frame, Gaps, Operator, Overview
from domain.text.formats import milliseconds

MAX_OPERATORS = 20
MICROSECONDS = 1e6
ROUNDING_S = 1e-9
STEP = "ProfilerStep#"
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_CPU_COLLECTIVES = ("gloo:", "mpi:", "ucc:")
_DATA = "enumerate(DataLoader)#"
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_COMMUNICATION_CALLS = ("c10d::", "record_param_comms")


class Event(NamedTuple):
    """One timed event of a trace, in seconds since its recording began."""

    category: str
    name: str
    thread: Any
    begin: float
    end: float


class NoSteps(ValueError):
    """The trace has no complete step."""


def recorded_events(trace: dict[str, Any]) -> list[Event]:
    """Return the timed events within the recorded steps, in order. Raises NoSteps."""
    events = [_event(event) for event in trace.get("traceEvents", ()) if event.get("ph") == "X"]
    steps = [event for event in events if event.name.startswith(STEP)]
    if not steps:
        raise NoSteps("the trace has no complete step")
    begin, end = min(step.begin for step in steps), max(step.end for step in steps)
    inside = [_clipped(event, begin, end) for event in events if event.end > begin and event.begin < end]
    return sorted(inside, key=lambda event: (event.begin, -event.end))


def overview(events: Sequence[Event]) -> Overview:
    """Return where the steps of `recorded_events` spent their time."""
    steps = [event for event in events if event.name.startswith(STEP)]
    operators = [event for event in events if event.category == "cpu_op"]
    annotations = [event for event in events if event.category == "user_annotation"]
    collectives = _spans(event for event in annotations if event.name.startswith(_CPU_COLLECTIVES))
    computing = _spans(event for event in operators if not event.name.startswith(_COMMUNICATION_CALLS))
    communication_s = length(collectives)
    view = Overview(
        steps=len({step.name for step in steps}),
        seconds=max(step.end for step in steps),
        data_s=length(_spans(event for event in annotations if event.name.startswith(_DATA))),
        communication_s=communication_s,
        exposed_communication_s=_nonnegative(communication_s - overlap(collectives, computing)),
        gaps=_gaps(_spans(event for event in operators if event.thread == steps[0].thread)),
        operators=_totals(operators),
        device=_device(events, max(step.end for step in steps)),
    )
    return view.model_copy(update={"advice": advise(view)})


def _event(event: dict[str, Any]) -> Event:
    begin = float(event.get("ts", 0)) / MICROSECONDS
    seconds = float(event.get("dur", 0)) / MICROSECONDS
    name = _ADDRESS.sub("", str(event.get("name", "")))[:300]
    return Event(str(event.get("cat", "")), name, event.get("tid"), begin, begin + seconds)


def _clipped(event: Event, begin: float, end: float) -> Event:
    return event._replace(begin=max(event.begin, begin) - begin, end=min(event.end, end) - begin)


def _spans(events: Iterable[Event]) -> list[Interval]:
    return union((event.begin, event.end) for event in events)


def _gaps(spans: Sequence[Interval]) -> Gaps:
    gaps = between(spans)
    return Gaps(count=len(gaps), total_s=sum(gaps), longest_s=max(gaps, default=0.0))


def _device(events: Sequence[Event], seconds: float) -> DeviceTimes | None:
    on_device = [event for event in events if event.category in _ON_DEVICE]
    if not on_device:
        return None
    busy, collectives = _spans(on_device), _spans(event for event in on_device if _is_collective(event))
    computing = _spans(event for event in on_device if not _is_collective(event))
    communication_s = length(collectives)
    return DeviceTimes(
        busy_share=min(1.0, length(busy) / seconds),
        communication_s=communication_s,
        exposed_communication_s=_nonnegative(communication_s - overlap(collectives, computing)),
        gaps=_gaps(busy),
        kernels=_totals(on_device),
    )


def _is_collective(event: Event) -> bool:
    return event.name.startswith("nccl")


def _totals(events: Sequence[Event]) -> list[Operator]:
    """Return the operators that took most time themselves, the longest first."""
    totals: dict[str, list[float]] = {}
    for event, self_s in _with_self_times(events):
        total = totals.setdefault(event.name, [0, 0.0, 0.0])
        total[0] += 1
        total[1] += self_s
        total[2] += event.end - event.begin
    longest = sorted(totals.items(), key=lambda item: -item[1][1])[:MAX_OPERATORS]
    return [
        Operator(name=name, calls=int(calls), self_s=_nonnegative(self_s), total_s=_nonnegative(total_s))
        for name, (calls, self_s, total_s) in longest
    ]


def _with_self_times(events: Sequence[Event]) -> Iterator[tuple[Event, float]]:
    """Yield each event with its seconds outside the events that it contains on its thread."""
    open_by_thread: dict[Any, list[list[Any]]] = {}
    for event in events:
        stack = open_by_thread.setdefault(event.thread, [])
        while stack and stack[-1][0].end <= event.begin + ROUNDING_S:
            yield tuple(stack.pop())
        if stack:
            stack[-1][1] -= event.end - event.begin
        stack.append([event, event.end - event.begin])
    for stack in open_by_thread.values():
        for event, self_s in stack:
            yield event, self_s


def _nonnegative(seconds: float) -> float:
    """Return zero for what rounding made negative."""
    return max(0.0, seconds)


# Recommendations that follow from a profile; none where the trace does not show it.

NOTABLE = 0.1
"""Share of a step below which nothing is recommended."""
IDLE = 0.3
OUTSIDE = 0.5
_WAITS_FOR_DEVICE = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")


def advise(view: Overview) -> list[str]:
    """Return one sentence for each part of the steps that can be made shorter, the longest wait first."""
    return [
        *_data(view),
        *_communication(view),
        *(_device_advice(view, view.device) if view.device else _cpu(view)),
    ]


def _data(view: Overview) -> Iterator[str]:
    if view.data_s > NOTABLE * view.seconds:
        yield (
            f"{view.data_s / view.seconds:.0%} of the time it waits for data: more workers in the DataLoader, "
            "or less work for each sample."
        )


def _communication(view: Overview) -> Iterator[str]:
    exposed_s = view.device.exposed_communication_s if view.device else view.exposed_communication_s
    if exposed_s > NOTABLE * view.seconds:
        yield (
            f"{exposed_s / view.seconds:.0%} of the time it only communicates, or waits for slower ranks: compare "
            "the ranks; if all wait alike, accumulate gradients over more micro-steps, or send bf16 (a DDP "
            "communication hook)."
        )


def _device_advice(view: Overview, device: DeviceTimes) -> Iterator[str]:
    if 1 - device.busy_share > IDLE:
        yield (
            f"The device is idle {1 - device.busy_share:.0%} of the time, in {device.gaps.count:,} gaps between "
            f"kernels (the longest {milliseconds(device.gaps.longest_s)}): a larger batch, or torch.compile, which "
            "launches fewer kernels."
        )
    waits_s = sum(operator.self_s for operator in view.operators if operator.name in _WAITS_FOR_DEVICE)
    if waits_s > NOTABLE * view.seconds:
        yield (
            f"{waits_s / view.seconds:.0%} of the time Python waits for values from the device (.item(), "
            "print(loss)): read them less often."
        )


def _cpu(view: Overview) -> Iterator[str]:
    outside_s = view.gaps.total_s - view.data_s - view.exposed_communication_s
    if outside_s > OUTSIDE * view.seconds:
        yield (
            f"{outside_s / view.seconds:.0%} of the time runs outside torch's operators: the flame graph shows "
            "which Python functions take it."
        )


# Arithmetic of time intervals, each a pair (begin, end).

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals that cover the same times, in order."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > begin:
            merged.append((begin, end))
    return merged


def length(disjoint: Sequence[Interval]) -> float:
    """Return the time that disjoint intervals cover."""
    return sum(end - begin for begin, end in disjoint)


def overlap(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """Return the time that both cover; each is disjoint and in order."""
    shared, at = 0.0, 0
    for begin, end in first:
        while at < len(second) and second[at][1] <= begin:
            at += 1
        following = at
        while following < len(second) and second[following][0] < end:
            shared += min(end, second[following][1]) - max(begin, second[following][0])
            following += 1
    return shared


def between(disjoint: Sequence[Interval]) -> list[float]:
    """Return the times from the end of each interval to the begin of the next."""
    return [after[0] - before[1] for before, after in pairwise(disjoint)]


# The flame graph of the thread that trains: Python functions, and torch's operators below them.

SMALLEST_SHARE = 0.002
MAX_DEPTH = 150
_OURS = ("rankzero_probe/", "torch/profiler/")


@dataclass
class _Node:
    seconds: float = 0.0
    callees: dict[str, _Node] = field(default_factory=dict)


def flame(events: Sequence[Event]) -> list[Frame]:
    """Return the frames of `recorded_events`, equal call paths added up, callers first, the longest callee first."""
    thread = next((event.thread for event in events if event.name.startswith(STEP)), None)
    root = _Node()
    stack: list[tuple[float, _Node]] = []
    for event in events:
        if event.thread != thread or not _is_frame(event):
            continue
        while stack and stack[-1][0] <= event.begin + ROUNDING_S:
            stack.pop()
        node = (stack[-1][1] if stack else root).callees.setdefault(event.name, _Node())
        node.seconds += event.end - event.begin
        stack.append((event.end, node))
    smallest_s = SMALLEST_SHARE * sum(node.seconds for node in root.callees.values())
    return list(_preorder(root, 0, smallest_s))[:MAX_FRAMES]


def _is_frame(event: Event) -> bool:
    is_ours = any(part in event.name for part in _OURS)
    return event.category in ("python_function", "cpu_op") and not is_ours


def _preorder(node: _Node, depth: int, smallest_s: float) -> Iterator[Frame]:
    for name, callee in sorted(node.callees.items(), key=lambda item: -item[1].seconds):
        if callee.seconds >= smallest_s and depth < MAX_DEPTH:
            yield depth, name, callee.seconds
            yield from _preorder(callee, depth + 1, smallest_s)
