"""Speed-up and efficiency of a study's points, and what they mean. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from domain.scaling.batches import BatchComparison, compared
from domain.scaling.measurement import quartiles, spread
from domain.scaling.points import MeasuredPoint, Point, limit_of
from domain.scaling.verdict import verdict


@dataclass(frozen=True)
class Judgement:
    """The points of a study, its global batches beside each other, and a verdict in words."""

    points: list[Point] = field(default_factory=list)
    verdict: str | None = None
    """None before the end of the study."""
    batches: BatchComparison | None = None
    """None where the study has one global batch, or one for each size."""


def judge(points: Sequence[MeasuredPoint], kind: str, is_ended: bool) -> Judgement:
    """Compare the points of each global batch with the smallest one; `kind` of device: cuda or cpu."""
    bases = _bases(points)
    shown = [
        _point(point, bases[point.global_batch_size]) if point.figures else _unmeasured(point)
        for point in points
    ]
    batches = compared(points)
    return Judgement(shown, verdict(points, shown, bases, batches, kind) if is_ended else None, batches)


def _bases(points: Sequence[MeasuredPoint]) -> Mapping[int | None, MeasuredPoint]:
    """The point that others of the same global batch are compared with: a single process, else the smallest."""
    bases: dict[int | None, MeasuredPoint] = {}
    for point in sorted(
        points, key=lambda one: (one.strategy != "single", one.strategy == "dp", one.devices)
    ):
        if point.figures:
            bases.setdefault(point.global_batch_size, point)
    return bases


def _point(point: MeasuredPoint, base: MeasuredPoint) -> Point:
    speedup, (low, high) = point.rate / base.rate, quartiles(point.figures)
    middle = median(figures.steps_per_s for figures in point.figures)
    limit = limit_of(point, base)
    return Point(
        point.devices, point.nodes, point.strategy, point.run,
        samples_per_s=point.samples_per_s,
        speedup=speedup,
        efficiency=speedup * base.devices / point.devices,
        spread=spread(point.figures),
        limit=limit.cause if limit else None,
        low=speedup * min(1.0, low / middle),
        high=speedup * max(1.0, high / middle),
        problem=point.problem,
        global_batch_size=point.global_batch_size,
    )  # fmt: skip


def _unmeasured(point: MeasuredPoint) -> Point:
    nothing = dict.fromkeys(("samples_per_s", "speedup", "efficiency", "spread"))
    return Point(
        point.devices, point.nodes, point.strategy, point.run, limit=None, problem=point.problem,
        global_batch_size=point.global_batch_size, **nothing,
    )  # fmt: skip
