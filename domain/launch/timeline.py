"""The phases of a run's start on each node, from the request to the first step, and the node that was slowest."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from domain.messages import PhaseEnd
from domain.text.formats import time_span

PHASES = (
    "queued",
    "placed",
    "environment",
    "data",
    "code fetched",
    "checkpoint fetched",
    "preflight",
    "process",
    "torch imported",
    "rendezvous",
    "model built",
    "first batch",
    "first step",
)
"""In their usual order; `compile` lies within others."""
UNTIL_IT_HAS_THE_RUN = PHASES[:2]
LAST = PHASES[-1]
COMPILE = "compile"
DOING = dict(
    zip(
        (*PHASES, COMPILE),
        (
            "waiting in the queue",
            "getting the run",
            "making the environment",
            "copying the data",
            "fetching the code",
            "fetching the checkpoint",
            "running the preflight",
            "starting the processes",
            "importing torch",
            "waiting for all ranks to meet (rendezvous)",
            "building the model",
            "loading the first batch",
            "running the first step",
            "compiling",
        ),
        strict=True,
    )
)
"""What a node is doing in each of them."""
WAITING = frozenset({"queued", "preflight", "rendezvous", LAST})
"""Phases in which nodes wait for each other: they are as long everywhere, so they name no slow node."""
SLOW_FACTOR, SLOW_S = 1.2, 0.5
"""A node is slow in a phase that took it so many times as long as the others, and so many seconds longer."""


@dataclass(frozen=True)
class Phase:
    """One phase of the start on one node; one in progress lasts until now."""

    node: str | None
    """None while no node is chosen."""
    phase: str
    started_at: float
    """Seconds since the epoch by the server's clock."""
    seconds: float
    note: str = ""
    """How it was passed, in a few words."""
    is_in_progress: bool = False


@dataclass(frozen=True)
class SlowNode:
    """The node that took clearly longer than the others in a phase."""

    node: str
    phase: str
    seconds: float
    others_s: float
    """Median of the other nodes."""


def node_phases(
    node: str,
    placed_at: float,
    ends: Sequence[PhaseEnd],
    offset_s: float = 0.0,
    in_progress_at: float | None = None,
    absent: Collection[str] = (),
) -> list[Phase]:
    """The phases on one node: each begins with the end of the one before it, unless it was measured by itself.

    `offset_s`: the node's clock minus the server's; `in_progress_at`: until when the next phase lasts, of those that
    are not `absent`."""
    phases, began = [], placed_at
    for end in sorted((end for end in ends if end.began_at is None), key=lambda end: end.at):
        at = max(began, end.at - offset_s)
        phases.append(Phase(node, end.phase, began, at - began, end.note))
        began = at
    next_phase = _next_phase(phases, absent)
    if in_progress_at is not None and next_phase is not None:
        seconds = max(0.0, in_progress_at - began)
        phases.append(Phase(node, next_phase, began, seconds, is_in_progress=True))
    measured = [end for end in ends if end.began_at is not None]
    return phases + [
        Phase(node, end.phase, end.began_at - offset_s, end.at - end.began_at)
        for end in measured
        if end.began_at is not None
    ]


def doing(phases: Iterable[Phase]) -> str | None:
    """gpu-2 is importing torch: the earliest of the phases in progress, for which all nodes wait; None without any."""
    in_progress = [phase for phase in phases if phase.is_in_progress and phase.phase not in UNTIL_IT_HAS_THE_RUN]
    earliest = min(in_progress, key=lambda phase: [*DOING].index(phase.phase), default=None)
    return None if earliest is None else f"{earliest.node} is {DOING[earliest.phase]}"


def slowest(phases: Iterable[Phase]) -> SlowNode | None:
    """The node and phase with the most seconds beyond the other nodes; None where no node stands out."""
    by_phase: dict[str, dict[str, float]] = {}
    for phase in phases:
        if phase.node is not None and phase.phase not in WAITING:
            by_phase.setdefault(phase.phase, {})[phase.node] = phase.seconds
    candidates = [slow for name, seconds in by_phase.items() if (slow := _slow_in(name, seconds))]
    return max(candidates, key=lambda slow: slow.seconds - slow.others_s, default=None)


def slow_sentence(slow: SlowNode) -> str:
    """Importing torch took 31 s on gpu-2, 6.1 s elsewhere."""
    work, elsewhere = DOING[slow.phase], _tenths(slow.others_s)
    return f"{work[:1].upper()}{work[1:]} took {_tenths(slow.seconds)} on {slow.node}, {elsewhere} elsewhere."


def _tenths(seconds: float) -> str:
    """31 s, 4.5 s, under 0.1 s."""
    if seconds < 0.1:
        return "under 0.1 s"
    return f"{seconds:.1f} s".replace(".0 s", " s") if seconds < 10 else time_span(seconds)


def longest_by_phase(phases: Iterable[Phase]) -> dict[str, float]:
    """Phase -> its seconds on the node where it took longest."""
    longest: dict[str, float] = {}
    for phase in phases:
        longest[phase.phase] = max(phase.seconds, longest.get(phase.phase, 0.0))
    return longest


def is_finished(phases: Iterable[Phase]) -> bool:
    """Whether every node has made its first step."""
    reached: dict[str | None, bool] = {}
    for phase in phases:
        reached[phase.node] = reached.get(phase.node, False) or phase.phase == LAST
    return bool(reached) and all(reached.values())


def _slow_in(phase: str, seconds: dict[str, float]) -> SlowNode | None:
    if len(seconds) < 2:
        return None
    node = max(seconds, key=lambda name: seconds[name])
    others_s = statistics.median(value for name, value in seconds.items() if name != node)
    is_slow = seconds[node] >= max(SLOW_FACTOR * others_s, others_s + SLOW_S)
    return SlowNode(node, phase, seconds[node], others_s) if is_slow else None


def _next_phase(phases: Sequence[Phase], absent: Collection[str]) -> str | None:
    """The phase after the latest that has ended."""
    last = max((PHASES.index(phase.phase) for phase in phases if phase.phase in PHASES), default=0)
    return next((name for name in PHASES[last + 1 :] if name not in absent), None)
