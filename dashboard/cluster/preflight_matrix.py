"""A preflight as the Nodes page shows it: nodes by checks, failures, and the links between nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from domain.preflight.judgement import rate
from domain.text.formats import agree, clock_time, count, plural
from domain.views import CheckView, PreflightCell

WORST_FIRST = ("failed", "warning", "waiting", "ok", "skipped")
MOST_IN_MATRIX = 32
"""With more nodes, only the slowest links are listed."""
MOST_LINKS = 20
LINKS = "bandwidth"


def picture(check: CheckView) -> dict[str, Any]:
    """Plain JSON values: all words are chosen here, the browser only draws them."""
    rows = list(dict.fromkeys(cell.row for cell in check.cells if cell.row != LINKS))
    cells_at: dict[tuple[str, str], list[PreflightCell]] = {}
    for cell in check.cells:
        cells_at.setdefault((cell.node, cell.row), []).append(cell)
    return {
        "verdict": verdict(check),
        "title": title(check),
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


def title(check: CheckView) -> str:
    """4 nodes at 2026-11-21 10:05 UTC: all checks passed; or 3 of 44 cells are red."""
    checked = [cell for cell in check.cells if cell.state != "skipped"]
    red, text = (
        len(check.failed),
        f"{plural(len(check.nodes), 'node')} at {clock_time(check.asked_at)[:-3]} UTC: ",
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
