"""The overview of one rank's trace, as torch's profiler writes it: where the recorded steps spent their time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from domain.profile_records import DeviceTimes, Gaps, Operator, Overview
from domain.profiles import intervals
from domain.profiles.advice import advise

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
    communication_s = intervals.length(collectives)
    view = Overview(
        steps=len({step.name for step in steps}),
        seconds=max(step.end for step in steps),
        data_s=intervals.length(_spans(event for event in annotations if event.name.startswith(_DATA))),
        communication_s=communication_s,
        exposed_communication_s=_nonnegative(communication_s - intervals.overlap(collectives, computing)),
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


def _spans(events: Iterable[Event]) -> list[intervals.Interval]:
    return intervals.union((event.begin, event.end) for event in events)


def _gaps(spans: Sequence[intervals.Interval]) -> Gaps:
    gaps = intervals.between(spans)
    return Gaps(count=len(gaps), total_s=sum(gaps), longest_s=max(gaps, default=0.0))


def _device(events: Sequence[Event], seconds: float) -> DeviceTimes | None:
    on_device = [event for event in events if event.category in _ON_DEVICE]
    if not on_device:
        return None
    busy, collectives = _spans(on_device), _spans(event for event in on_device if _is_collective(event))
    computing = _spans(event for event in on_device if not _is_collective(event))
    communication_s = intervals.length(collectives)
    return DeviceTimes(
        busy_share=min(1.0, intervals.length(busy) / seconds),
        communication_s=communication_s,
        exposed_communication_s=_nonnegative(communication_s - intervals.overlap(collectives, computing)),
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
