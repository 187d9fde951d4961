"""A scaling study, and the list of all, as the component draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboard.scaling.document import judgement, state
from dashboard.views.layout.links import address
from db.scaling.figures import Figures
from db.scaling.studies import StudyView
from domain.scaling.judgement import RULE_OF_THUMB, Judgement, Point, named
from domain.text.formats import ago, number

STRATEGIES = {"ddp": "DDP", "dp": "DataParallel", "single": "a single process", "fsdp": "FSDP"}
SOURCE = "Commonly quoted for DDP on the GPUs of one machine: 1.8x on 2, 3.5x on 4, 6 to 7x on 8."
LIST = ("Study", "Devices", "Scaling", "State", "Started", "Verdict")
POINTS = ("Devices", "Nodes", "Strategy", "Run", "Samples/s", "Speed-up", "Efficiency", "Spread", "Limit")


def study_name(study: StudyView) -> str:
    """The name of a study: its run's name, module or script."""
    spec = study.spec
    return spec.name or spec.module or (spec.entry or spec.target).rpartition("/")[2]


def studies_picture(studies: Sequence[StudyView], figures: Figures, now: float) -> dict[str, Any]:
    """All studies as a table."""
    return {"columns": LIST, "rows": [_study_row(study, judgement(study, figures), now) for study in studies]}


def study_picture(study: StudyView, judged: Judgement) -> dict[str, Any]:
    """One study: its chart once something is measured, and its points as a table."""
    kind = study.points[0]["kind"]
    return {
        "chart": _chart(judged.points, kind),
        "columns": POINTS,
        "rows": [_point_row(point) for point in judged.points],
    }


def _study_row(study: StudyView, judged: Judgement, now: float) -> dict[str, Any]:
    sizes = ", ".join(str(size) for size in sorted({point["devices"] for point in study.points}))
    shown = (study_name(study), sizes, study.mode, state(study, judged), ago(study.created_at, now))
    cells = [*shown, judged.verdict or ""]
    return {"cells": cells, "at": 0, "address": address("scaling", id=study.id)}


def _point_row(point: Point) -> dict[str, Any]:
    cells = [
        str(point.devices),
        str(point.nodes),
        STRATEGIES.get(point.strategy, point.strategy),
        point.run or "",
        number(point.samples_per_s) if point.samples_per_s is not None else "",
        f"{point.speedup:.2f}x" if point.speedup is not None else "",
        f"{point.efficiency:.0%}" if point.efficiency is not None else "",
        f"{point.spread:.1%}" if point.spread is not None else "",
        point.limit or point.problem or "",
    ]
    run = {"at": 3, "address": address("run", id=point.run)} if point.run else {}
    return {"cells": cells, **run}


def _chart(points: Sequence[Point], kind: str) -> dict[str, Any] | None:
    measured = [point for point in points if point.speedup is not None]
    if not measured:
        return None
    base = min(measured, key=lambda point: abs((point.speedup or 0) - 1)).devices
    most = max(point.devices for point in measured)
    rule = [[size, *speedups] for size, speedups in RULE_OF_THUMB.items() if size <= most and base == 1]
    return {
        "points": [_drawn(point, kind) for point in measured],
        "base": base,
        "rule": rule,
        "unit": "GPUs" if kind == "cuda" else "processes",
        "names": STRATEGIES,
        "source": SOURCE,
    }


def _drawn(point: Point, kind: str) -> dict[str, Any]:
    speed = f", {number(point.samples_per_s)} samples/s" if point.samples_per_s is not None else ""
    label = f"{named(point.devices, kind)}: {point.speedup:.2f}x, {point.efficiency:.0%}{speed}"
    return {
        "devices": point.devices,
        "strategy": point.strategy,
        "speedup": point.speedup,
        "low": point.low,
        "high": point.high,
        "label": label,
    }
