"""A scaling study as its component draws it: chart, global batches side by side, and points as a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dashboard.studies.scaling_document import rate_rule
from dashboard.views.layout.links import address
from db.studies.studies import ScalingView
from domain.lists.run_lists import STRATEGIES, scaling_points
from domain.scaling.batches import GAIN_SHARE, LOSS_SHARE, BatchComparison, BatchFigures
from domain.scaling.judgement import RULE_OF_THUMB, Judgement
from domain.scaling.points import Point, named
from domain.text.columns import Columns
from domain.text.formats import UNKNOWN, count, learning_rate, number

SOURCE = "Commonly quoted for DDP on the GPUs of one machine: 1.8x on 2, 3.5x on 4, 6 to 7x on 8."


def study_picture(study: ScalingView, judged: Judgement) -> dict[str, Any]:
    """One study: its chart once something is measured, its global batches side by side, and its points as a table."""
    kind, has_batches = study.plan.points[0].kind, judged.batches is not None
    columns = scaling_points(has_batches)
    return {
        "chart": _chart(judged.points, kind, has_batches),
        "batches": batches_table(judged, rate_rule(study), kind) if judged.batches else None,
        "columns": [column.heading for column in columns],
        "rows": [_point_row(point, columns) for point in judged.points],
    }


def _point_row(point: Point, columns: Columns[Point]) -> dict[str, Any]:
    at = [column.title for column in columns].index("run")
    run = {"at": at, "address": address("run", id=point.run)} if point.run else {}
    return {"cells": [str(column.cell(point)) for column in columns], **run}


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


# The global batches of a study side by side: throughput by devices, learning rate and loss.

FLAT = f"A larger global batch gains less than {GAIN_SHARE:.0%} throughput on as many devices."
WORSE = "The loss is higher than with a smaller batch after the same number of samples."
NOTE = (
    "Samples per second, and the efficiency against the fewest devices with the same global batch. "
    f"flat: from here on a larger batch gains less than {GAIN_SHARE:.0%}."
)
NOTE_ON_LOSS = f" worse: more than {LOSS_SHARE:.0%} above the lowest loss of smaller batches after as many samples."


def batches_table(judged: Judgement, rate_rule: str, kind: str) -> dict[str, Any] | None:
    """Return the table: a column for each global batch, a row for each number of devices, then rate and loss.

    A cell is `text` with its `mark` and `title`."""
    batches = judged.batches
    if batches is None:
        return None
    devices = sorted({point.devices for point in judged.points})
    sizes = [one.global_batch_size for one in batches.batches]
    return {
        "columns": ["Global batch", *map(count, sizes)],
        "best": next((at for at, batch in enumerate(sizes, 1) if batch == batches.best), 0),
        "note": NOTE + (NOTE_ON_LOSS if batches.loss_name else ""),
        "rows": [
            *(_throughput(judged.points, batches, size, kind) for size in devices),
            _row(f"Learning rate ({rate_rule})", [learning_rate(one.lr) for one in batches.batches]),
            *([_losses(batches)] if batches.loss_name else []),
        ],
    }


def runs_of_batches(points: Sequence[Point]) -> list[str]:
    """Return a measured run of each global batch, those on the most devices."""
    measured = [point for point in points if point.run and point.speedup is not None]
    by_batch = {point.global_batch_size: point.run for point in sorted(measured, key=lambda one: one.devices)}
    return [run for _, run in sorted((batch or 0, run or "") for batch, run in by_batch.items())]


def _throughput(points: Sequence[Point], batches: BatchComparison, devices: int, kind: str) -> dict[str, Any]:
    by_batch = {one.global_batch_size: one for one in points if one.devices == devices}
    flat = batches.flat_from.get(devices)
    cells = []
    for one in batches.batches:
        point = by_batch.get(one.global_batch_size)
        cell = {"text": _speed(point)}
        if one.global_batch_size == flat:
            cell |= {"mark": "flat", "title": FLAT}
        cells.append(cell)
    return {"title": f"Samples/s on {named(devices, kind)}", "cells": cells}


def _speed(point: Point | None) -> str:
    if point is None or point.speedup is None:
        return "failed" if point and point.problem else UNKNOWN
    speed = number(point.samples_per_s) if point.samples_per_s is not None else f"{point.speedup:.2f}x"
    return f"{speed} · {point.efficiency:.0%}"


def _losses(batches: BatchComparison) -> dict[str, Any]:
    cells = []
    for one in batches.batches:
        cell = {"text": _loss(one)}
        if one.is_worse:
            cell |= {
                "mark": "worse",
                "title": WORSE,
            }
        cells.append(cell)
    return {"title": f"{batches.loss_name} after {number(batches.samples)} samples", "cells": cells}


def _loss(one: BatchFigures) -> str:
    if one.loss is None:
        return UNKNOWN
    if not math.isfinite(one.loss):
        return "not finite"
    change = f" · {one.loss_change:+.0%}" if one.loss_change is not None and math.isfinite(one.loss_change) else ""
    return number(one.loss) + change


def _row(title: str, texts: Sequence[str]) -> dict[str, Any]:
    return {"title": title, "cells": [{"text": text} for text in texts]}
