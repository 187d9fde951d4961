"""A scaling study, and the list of all, as the component draws them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dashboard.scaling.document import judgement, rate_rule, state
from dashboard.views.layout.links import address
from dashboard.views.scaling.batches import batches_table
from db.scaling.studies import Figures, StudyView
from domain.scaling.judgement import RULE_OF_THUMB, Judgement
from domain.scaling.points import Point, named
from domain.text.formats import ago, as_list, count, number

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
    """One study: its chart once something is measured, its global batches side by side, and its points as a table."""
    kind, has_batches = study.points[0]["kind"], judged.batches is not None
    return {
        "chart": _chart(judged.points, kind, has_batches),
        "batches": batches_table(judged, rate_rule(study), kind) if judged.batches else None,
        "columns": ("Global batch", *POINTS) if has_batches else POINTS,
        "rows": [_point_row(point, has_batches) for point in judged.points],
    }


def batches_words(study: StudyView) -> str:
    """Return the global batches of a study as the end of a phrase; nothing where it has only one."""
    batches = sorted({batch for point in study.points if (batch := point.get("global_batch_size"))})
    return f", global batches {as_list(map(count, batches), 5)}" if len(batches) > 1 else ""


def _study_row(study: StudyView, judged: Judgement, now: float) -> dict[str, Any]:
    sizes = ", ".join(str(size) for size in sorted({point["devices"] for point in study.points}))
    shown = (
        study_name(study),
        sizes,
        study.mode + batches_words(study),
        state(study, judged),
        ago(study.created_at, now),
    )
    cells = [*shown, judged.verdict or ""]
    return {"cells": cells, "at": 0, "address": address("scaling", id=study.id)}


def _point_row(point: Point, has_batches: bool) -> dict[str, Any]:
    cells = [
        *([count(point.global_batch_size)] if has_batches else []),
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
    run = {"at": 3 + has_batches, "address": address("run", id=point.run)} if point.run else {}
    return {"cells": cells, **run}


def _chart(points: Sequence[Point], kind: str, has_batches: bool) -> dict[str, Any] | None:
    measured = [point for point in points if point.speedup is not None]
    if not measured:
        return None
    base = min(measured, key=lambda point: (abs((point.speedup or 0) - 1), point.devices)).devices
    most = max(point.devices for point in measured)
    rule = [[size, *speedups] for size, speedups in RULE_OF_THUMB.items() if size <= most and base == 1]
    return {
        "points": [_drawn(point, base, kind, has_batches) for point in measured],
        "curves": _curves(measured, has_batches),
        "base": base,
        "rule": rule,
        "unit": "GPUs" if kind == "cuda" else "processes",
        "source": SOURCE,
    }


def _curves(points: Sequence[Point], has_batches: bool) -> list[dict[str, Any]]:
    """The curves of a chart: strategies, or global batches, whose `shade` grows from 0 to 1."""
    if not has_batches:
        return [{"id": one, "name": STRATEGIES.get(one, one)} for one in dict.fromkeys(p.strategy for p in points)]
    batches = sorted({point.global_batch_size or 0 for point in points})
    last = max(1, len(batches) - 1)
    return [
        {"id": str(batch), "name": f"global batch {count(batch)}", "shade": at / last}
        for at, batch in enumerate(batches)
    ]


def _drawn(point: Point, base: int, kind: str, has_batches: bool) -> dict[str, Any]:
    """A point of the chart; a global batch that was not measured on the `base` devices begins on the ideal line."""
    raised = (point.efficiency or 0) * point.devices / (base * (point.speedup or 1))
    speed = f", {number(point.samples_per_s)} samples/s" if point.samples_per_s is not None else ""
    batch = f"global batch {count(point.global_batch_size)}, " if has_batches else ""
    label = f"{batch}{named(point.devices, kind)}: {point.speedup:.2f}x, {point.efficiency:.0%}{speed}"
    return {
        "devices": point.devices,
        "curve": str(point.global_batch_size) if has_batches else point.strategy,
        "speedup": (point.speedup or 0) * raised,
        "low": (point.low or 0) * raised,
        "high": (point.high or 0) * raised,
        "label": label[0].upper() + label[1:],
    }
