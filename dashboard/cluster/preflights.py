"""Preflights: requested by people, answered by nodes, continued when a node is silent, and shown on the Nodes page."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from dashboard.clock import AnchoredTime
from db import acting
from db.engine import Store
from db.exceptions import NoSuchCheck
from db.people.visibility import visible_ids
from db.preflight import preflight_sessions, start_gate
from domain.assignments import DesiredCheck
from domain.messages import CheckAnswer
from domain.people.roles import Action
from domain.preflight import rate
from domain.text.formats import agree, clock_minute, count, plural
from domain.views import CheckView, PreflightCell


class Preflights:
    """All preflights of one store; safe to use from any thread."""

    def __init__(
        self, store: Store, clock: AnchoredTime, desired_state_changed: Callable[[Collection[str] | None], None]
    ) -> None:
        self._store, self._clock = store, clock
        self._desired_state_changed = desired_state_changed
        self._ended: dict[int, CheckView] = {}
        """Cached: they never change again, and judging hundreds of nodes takes long."""

    def ask(self, nodes: list[str] | None, bandwidth: bool) -> int:
        """Ask nodes, by name or id (None: all that are online). Raises NoSuchNode, InvalidRequest, Denied."""
        acting.rights().check(Action.OPERATE, None)
        check_id = preflight_sessions.ask(self._store, nodes, bandwidth, self._clock())
        self._desired_state_changed(preflight_sessions.node_ids(self._store, check_id))
        return check_id

    def all(self) -> list[CheckView]:
        """The preflights that people asked for, newest first."""
        ended_checks, checks = self._ended, []
        for check_id in preflight_sessions.on_demand(self._store):
            checks += (
                [ended_checks[check_id]]
                if check_id in ended_checks
                else preflight_sessions.views(self._store, check_id)
            )
        self._ended = {check.id: check for check in checks if check.id and check.ended_at is not None}
        return checks

    def one(self, check_id: int) -> CheckView:
        """One preflight with the answers so far. Raises NoSuchCheck."""
        views = preflight_sessions.views(self._store, check_id)
        checks = [view for view in views if view.run_id is None or visible_ids(self._store, [view.run_id])]
        if not checks:
            raise NoSuchCheck(
                f"There is no preflight {check_id}; the last {preflight_sessions.MOST_REMEMBERED} are kept."
            )
        return checks[0]

    def of_run(self, run_id: str) -> CheckView | None:
        """The preflight before a run's start; None on one node. Raises NoSuchRun."""
        return start_gate.preflight_of_run(self._store, run_id)

    def requested_checks(self, node_id: str) -> list[DesiredCheck]:
        """The preflights that a node takes part in."""
        return preflight_sessions.check_requests(self._store, node_id)

    def answered(self, node_id: str, check_id: int, check_answer: CheckAnswer) -> list[str]:
        """Take a node's answer; returns the ids of the runs that it moved on."""
        moved, run_ids = start_gate.check_answered(self._store, node_id, check_id, check_answer, self._clock())
        if moved:
            self._desired_state_changed(preflight_sessions.node_ids(self._store, check_id))
        return run_ids

    def tick(self, now: float) -> list[str]:
        """Continue without overdue nodes; returns the ids of the runs that this moved on."""
        moved, run_ids = start_gate.checks_overdue(self._store, now)
        if moved:
            self._desired_state_changed(None)
        return run_ids


# A preflight as the Nodes page shows it: nodes by checks, failures, and the links between nodes. Pure.

WORST_FIRST = ("failed", "warning", "waiting", "ok", "skipped")
MOST_IN_MATRIX = 32
"""With more nodes, only the slowest links are listed."""
MOST_LINKS = 20
LINKS = "bandwidth"


def picture(check: CheckView, by: str = "") -> dict[str, Any]:
    """Plain JSON values: all words are chosen here, the browser only draws them; `by`: its owner, in words."""
    rows = list(dict.fromkeys(cell.row for cell in check.cells if cell.row != LINKS))
    cells_at: dict[tuple[str, str], list[PreflightCell]] = {}
    for cell in check.cells:
        cells_at.setdefault((cell.node, cell.row), []).append(cell)
    return {
        "verdict": verdict(check),
        "title": title(check, by),
        "rows": rows,
        "nodes": [
            {"name": node, "cells": [worst(cells_at.get((node, row), ())) for row in rows]} for node in check.nodes
        ],
        "troubles": [_trouble(cell) for cell in check.cells if cell.state in ("failed", "warning")],
        "links": links(check),
    }


def verdict(check: CheckView) -> str:
    """`red`, `green`, or `asking` while nodes still answer and nothing is red."""
    if check.failed:
        return "red"
    return "green" if check.ended_at is not None else "asking"


def title(check: CheckView, by: str = "") -> str:
    """4 nodes at 2026-11-21 10:05 UTC, by ana: all checks passed; or 3 of 44 cells are red."""
    checked = [cell for cell in check.cells if cell.state != "skipped"]
    red, text = (
        len(check.failed),
        f"{plural(len(check.nodes), 'node')} at {clock_minute(check.asked_at)}{by}: ",
    )
    if red:
        text += f"{count(red)} of {plural(len(checked), 'cell')} {agree(red, 'is', 'are')} red"
    elif check.ended_at is not None:
        text += "all checks passed"
    if check.ended_at is None:
        waiting = {cell.node for cell in check.cells if cell.state == "waiting"}
        text += f"{', ' if red else ''}asking {plural(len(waiting), 'node')} …" if waiting else "measuring …"
    return text


def worst(cells: Sequence[PreflightCell]) -> list[str]:
    """State and words of one field of the matrix; a node has one cell for each peer it cannot reach."""
    if not cells:
        return ["skipped", "not checked"]
    state = min((cell.state for cell in cells), key=WORST_FIRST.index)
    words = [_words(cell) for cell in cells if cell.state == state and (cell.value or cell.peer)]
    return [state, "; ".join(words[:4]) + (f"; and {len(words) - 4} more" if len(words) > 4 else "")]


def links(check: CheckView) -> dict[str, Any] | None:
    """Bandwidth as a matrix of words and fractions of the fastest, or as a list of the slowest; None without any."""
    speeds = {
        (min(a, b), max(a, b)): speed
        for a, row in enumerate(check.bandwidth)
        for b, speed in enumerate(row)
        if speed is not None and a != b
    }
    index_of = {node: index for index, node in enumerate(check.nodes)}
    broken = {
        (min(index_of[c.node], index_of[c.peer]), max(index_of[c.node], index_of[c.peer])): c.value
        for c in check.cells
        if c.row == LINKS and c.state == "failed" and c.node in index_of and c.peer in index_of
    }
    if not speeds and not broken:
        return None
    shown = sorted({index for pair in speeds.keys() | broken.keys() for index in pair})
    fits = len(shown) <= MOST_IN_MATRIX
    drawn = {pair: _link(speed, max(speeds.values())) for pair, speed in speeds.items()}
    drawn |= {pair: {"text": "✕", "share": 0.0, "problem": problem} for pair, problem in broken.items()}
    by_speed = sorted(speeds, key=lambda pair: speeds[pair])[:MOST_LINKS]
    return {
        "summary": _spread(sorted(speeds.values())),
        "nodes": [check.nodes[index] for index in shown],
        "matrix": [[drawn.get((min(a, b), max(a, b))) for b in shown] for a in shown] if fits else None,
        "slowest": []
        if fits
        else [{"name": f"{check.nodes[a]} – {check.nodes[b]}"} | drawn[a, b] for a, b in by_speed],
    }


def _link(speed: float, fastest: float) -> dict[str, Any]:
    return {"text": rate(speed), "share": speed / fastest}


def _spread(speeds: Sequence[float]) -> str:
    if not speeds:
        return "No all-reduce succeeded."
    phrases = [f"{plural(len(speeds), 'pair')} measured", f"median {rate(speeds[len(speeds) // 2])}"]
    return ", ".join([*phrases, f"slowest {rate(speeds[0])}"] if len(speeds) > 1 else phrases)


def _words(cell: PreflightCell) -> str:
    return f"{cell.peer}: {cell.value}" if cell.peer and cell.state != "ok" else cell.value


def _trouble(cell: PreflightCell) -> dict[str, str]:
    where = cell.node + (f" → {cell.peer}" if cell.peer else "")
    return {"state": cell.state, "where": where, "row": cell.row, "value": cell.value, "fix": cell.fix}
