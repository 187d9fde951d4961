"""The table of all measured rows, as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Spread, milliseconds
from benchmarks.misses import WHY

INTRODUCTION = """# Benchmarks

`make bench` measures Rankzero, its peers and the machine's limits in turns within one run, and writes this page.
With ≥ the ratio is how many times better Rankzero is; with ≤ it is Rankzero's figure divided by the peer's or the
limit. Brackets hold the quartiles of the rounds, and next to a title the load of the 15 minutes before: on a busy
machine read the ratios, not the times.

![How far each row is from its target](../docs/pictures/benchmark-ratios.svg)

![How costs grow with size](../docs/pictures/benchmark-growth.svg)
"""
PAGE_HEAD = ("what", "Rankzero", "against", "ratio (quartiles), to reach")
HEAD = ("what", "Rankzero", "against", "theirs", "ratio (quartiles)", "to reach", "")
SHORT_HEAD = ("what", "ours", "theirs", "ratio")
QUARTILES = re.compile(r" \([\d.]+-[\d.]+\)")
DOES_LESS = {
    ("chart of 1,000,000 points, whole", "TensorBoard"): "1,000 of them",
    ("list, by urgency, 10,000 runs", "MLflow"): "no counts, no curves",
}
"""What a peer leaves out of its work in a row of the README."""


def table(results: Iterable[Path]) -> str:
    """The rows of these measurements, and below them how costs grow."""
    documents = [json.loads(path.read_text()) for path in results]
    rows = [_cells(figure) for document in documents for figure in document["figures"]]
    costs = [_growth(cost) for document in documents for cost in document["costs"]]
    lines = [_line(HEAD), _line("---" for _ in HEAD), *map(_line, rows)] if rows else []
    return "\n".join([*lines, *([""] if lines and costs else []), *costs])


def short(documents: Iterable[dict[str, Any]]) -> str:
    """A table of some rows: medians, and how many times better ours are."""
    return "\n".join(map(_line, [SHORT_HEAD, ["---" for _ in SHORT_HEAD], *map(_short_cells, documents)]))


def _short_cells(document: dict[str, Any]) -> tuple[str, ...]:
    figure = _figure(document)
    lack = f" ({less})" if (less := DOES_LESS.get((figure.what, figure.peer))) else ""
    ours, theirs = (QUARTILES.sub("", cell) for cell in (figure.ours, figure.theirs))
    median = figure.ratio.median
    times = median if figure.better == "more" else 1 / max(median, 1e-9)
    return figure.what, ours, f"{figure.peer.removeprefix('a ')}{lack}: {theirs}", f"{times:.3g}"


def document(results: Iterable[Path]) -> str:
    """The page of everything that was measured: one table, why rows miss their targets, how costs grow."""
    measured = {path.stem: json.loads(path.read_text()) for path in results}
    machines = {each["machine"] for each in measured.values()}
    lines = [_line(PAGE_HEAD), _line("---" for _ in PAGE_HEAD)]
    for name, each in measured.items():
        lines += _section(name, each, len(machines) > 1)
    missed = [name for name in WHY if name in measured and not _all_met(measured[name])]
    why = [f"- **{_title(name)}**: {WHY[name]}" for name in missed]
    growth = [_exponent(cost) for each in measured.values() for cost in each["costs"]]
    tables = {
        f"Measured on {' and '.join(sorted(machines))}": lines,
        "Why a target is missed": why,
        "How costs grow": ["The cost grows with this power of the size:", "", *growth] if growth else [],
    }
    return "\n".join([INTRODUCTION, *(f"## {title}\n\n{_text(of_it)}\n" for title, of_it in tables.items() if of_it)])


def _section(name: str, measured: dict[str, Any], says_machine: bool) -> list[str]:
    """The rows of one measurement below a row with its name, load and, where they differ, machine."""
    if not measured["figures"]:
        return []
    machine = f"{measured['machine']}, " if says_machine else ""
    head = f"**{_title(name)}** ({machine}{measured['load']})"
    cells = [_in_page(_cells(figure)) for figure in measured["figures"]]
    return [
        f"| {head} |",
        *(_line(_without_repetition(row, before)) for before, row in pairwise([(), *cells])),
    ]


def _in_page(cells: tuple[str, ...]) -> tuple[str, ...]:
    """The cells of a row in few columns."""
    what, ours, peer, theirs, ratio, aim, verdict = cells
    return what, ours, f"{peer.removeprefix('a ')}: {theirs}", f"{ratio} {aim}: {verdict}"


def _without_repetition(cells: tuple[str, ...], before: tuple[str, ...]) -> tuple[str, ...]:
    """A row in which what we measured is left out if the row before has the same."""
    return ("", "", *cells[2:]) if cells[:2] == before[:2] else cells


def _all_met(measured: dict[str, Any]) -> bool:
    return all(figure["met"] for figure in measured["figures"])


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _cells(document: dict[str, Any]) -> tuple[str, ...]:
    figure, verdict = _figure(document), "met" if document["met"] else "missed"
    return figure.what, figure.ours, figure.peer, figure.theirs, str(figure.ratio), figure.aim, verdict


def _figure(document: dict[str, Any]) -> Figure:
    """The row that a result's document holds."""
    values = {name: value for name, value in document.items() if name != "met"}
    return Figure(**values | {"ratio": Spread(**values["ratio"])})


def _growth(cost: dict[str, Any]) -> str:
    seconds = ", ".join(f"{int(size):,}: {milliseconds(s)}" for size, s in cost["seconds"].items())
    return f"{cost['what']} by {cost['size_name']}: {seconds}; exponent {cost['exponent']:.2f}"


def _exponent(cost: dict[str, Any]) -> str:
    return f"- {cost['what']} by {cost['size_name']}: {cost['exponent']:.2f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
