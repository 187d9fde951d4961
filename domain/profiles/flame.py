"""The flame graph of the thread that trains: Python functions, and torch's operators below them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from domain.profile_records import MAX_FRAMES, Frame
from domain.profiles.overview import ROUNDING_S, STEP, Event

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
