"""The start of a run, phase by phase on each node: why it does not train yet, or how long it took to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard.components.browser import timeline
from dashboard.service import service
from db.attempts import attempt_queries
from db.people.visibility import visibility
from domain.launch.timeline import (
    COMPILE,
    LAST,
    PHASES,
    Phase,
    SlowNode,
    is_finished,
    longest_by_phase,
    slow_sentence,
    slowest,
)
from domain.messages import State
from domain.text.formats import as_text, time_span
from domain.views import RunView


def starting(run: RunView) -> bool:
    """Show the phases while a run that has its nodes does not train yet; returns whether it did."""
    if run.state in STARTING and not run.step:
        phases = _phases(run.id)
        if _is_starting(run, phases):
            timeline(picture(phases, is_starting=True, before=_before(run.id, _seen_by())), key="run_start")
            return True
    return False


QUEUED = PHASES[0]
MOST_NODES = 32
LOOK_AGAIN_S = 60.0
"""Seconds for which the run before is remembered: the page is drawn again every other second."""
STARTING = frozenset({State.QUEUED, State.STARTING, State.RUNNING})


def folded(run: RunView) -> None:
    """Show the phases of the latest start in a fold that says how long it took; not while they stand above."""
    phases = _phases(run.id)
    if _placed(phases) and not _is_starting(run, phases):
        drawn = picture(phases, is_starting=False, before=_before(run.id, _seen_by()))
        with st.expander(drawn["title"]):
            timeline(drawn | {"title": ""}, key="run_start_folded")
            for note in dict.fromkeys(f"{phase.node}: {phase.note}." for phase in phases if phase.note):
                st.caption(as_text(note))


def _is_starting(run: RunView, phases: Sequence[Phase]) -> bool:
    has_begun = bool(run.step) or run.state not in STARTING
    return bool(_placed(phases)) and not has_begun and not is_finished(phases)


def _phases(run_id: str) -> list[Phase]:
    current = service.current()
    return attempt_queries.timeline(current.store, run_id, current.clock())


def _seen_by() -> str:
    """The projects that the visitor may see, as a key of answers that are cached for several people."""
    only, hidden, *own = visibility()
    return f"{only if only is None else sorted(only)} {sorted(hidden)} {own}"


@st.cache_data(ttl=LOOK_AGAIN_S, show_spinner=False, max_entries=100)
def _before(run_id: str, seen_by: str) -> tuple[str, list[Phase]] | None:
    """The timeline of an earlier run; `seen_by` keeps apart what people of different projects are shown."""
    current = service.current()
    return attempt_queries.previous_timeline(current.store, run_id, current.clock())


def picture(
    phases: Sequence[Phase], is_starting: bool, before: tuple[str, Sequence[Phase]] | None = None
) -> dict[str, Any]:
    """The phases as the component draws them, with a column for the run before (`run id, phases`)."""
    nodes: dict[str | None, list[Phase]] = {}
    for phase in phases:
        nodes.setdefault(phase.node, []).append(phase)
    shown = dict(list(nodes.items())[:MOST_NODES])
    names = [name for name in (*PHASES, COMPILE) if any(phase.phase == name for phase in phases)]
    columns = ["Phase", *(node or "no node yet" for node in shown), *([f"run {before[0]}"] if before else [])]
    return {
        "title": _title(phases, is_starting, before),
        "nodes": [_node(node, of_node, _began(phases), is_starting) for node, of_node in shown.items()],
        "columns": columns,
        "rows": _rows(names, shown, slowest(phases), longest_by_phase(before[1]) if before else None),
    }


def _rows(
    names: Sequence[str],
    nodes: Mapping[str | None, Sequence[Phase]],
    slow: SlowNode | None,
    before: Mapping[str, float] | None,
) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        seconds = [next((p.seconds for p in phases if p.phase == name), None) for phases in nodes.values()]
        is_slow = slow is not None and slow.phase == name and slow.node in nodes
        rows.append(
            {
                "name": name,
                "colour": _colour(name),
                "cells": [*map(time_span, seconds), *([time_span(before.get(name))] if before else [])],
                "slow": list(nodes).index(slow.node) if slow is not None and is_slow else None,
            }
        )
    return rows


def _node(node: str | None, phases: Sequence[Phase], began: float, is_starting: bool) -> dict[str, Any]:
    """One node's bar, from its placement on: a queue of hours would leave no room for the rest."""
    in_progress = _open_phase(phases) if is_starting else None
    return {
        "name": node or "no node yet",
        "phases": [_drawn(phase, began, phase is in_progress) for phase in _placed(phases)],
    }


def _drawn(phase: Phase, began: float, is_in_progress: bool) -> dict[str, Any]:
    return {
        "name": phase.phase,
        "at": phase.started_at - began,
        "seconds": phase.seconds,
        "colour": _colour(phase.phase),
        "inner": phase.phase == COMPILE,
        "in_progress": is_in_progress,
    }


def _open_phase(of_node: Sequence[Phase]) -> Phase | None:
    """The last phase of a node that has not made its first step."""
    last = next((phase for phase in reversed(of_node) if phase.phase != COMPILE), None)
    return None if last is None or last.phase == LAST else last


def _title(phases: Sequence[Phase], is_starting: bool, before: tuple[str, Sequence[Phase]] | None = None) -> str:
    whole_s = _whole_s(phases)
    slow = slowest(phases)
    if is_starting:
        parts = [f"Starting for {time_span(whole_s)}"]
    elif is_finished(phases):
        parts = [f"First step {time_span(whole_s)} after its nodes were chosen"]
    else:
        parts = ["No first step was seen"]
    if before:
        parts.append(f"run {before[0]} took {time_span(_whole_s(before[1]))} to its first step")
    sentence = f"{'; '.join(parts)}."
    if slow is not None:
        return f"{sentence} {slow_sentence(slow)}"
    longest = max((p for p in _placed(phases) if p.phase != COMPILE), key=lambda phase: phase.seconds)
    return f"{sentence} Longest: {longest.phase}, {time_span(longest.seconds)}."


def _placed(phases: Sequence[Phase]) -> list[Phase]:
    """The phases after the queue."""
    return [phase for phase in phases if phase.phase != QUEUED]


def _whole_s(phases: Sequence[Phase]) -> float:
    """Seconds from the placement on."""
    return max(phase.started_at + phase.seconds for phase in phases) - _began(phases)


def _began(phases: Sequence[Phase]) -> float:
    return min(phase.started_at for phase in _placed(phases))


def _colour(phase: str) -> int:
    return [*PHASES, COMPILE].index(phase) if phase in (*PHASES, COMPILE) else 0
