"""Speed-up and efficiency of a study's points, and what they mean. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from domain.scaling.batches import BatchComparison, compared
from domain.scaling.measurement import is_steady, quartiles, spread, spread_of_medians
from domain.scaling.points import DISTURBED_SHARE, MeasuredPoint, Point, limit_of, mean_step, named
from domain.text.formats import as_list, count, number, plural

WORTHWHILE = 0.5
"""Share of the additional devices that must arrive as additional throughput."""
SAME_BATCH = 0.01
"""Share by which the samples of a step may differ from the requested batch: the last one of an epoch is smaller."""
Name = Callable[[MeasuredPoint], str]
"""Names a size in a sentence."""


def verdict(
    points: Sequence[MeasuredPoint],
    shown: Sequence[Point],
    bases: Mapping[int | None, MeasuredPoint],
    batches: BatchComparison | None,
    kind: str,
) -> str | None:
    """Say what more devices bring and what limits them, with several global batches which of them to choose; None
    where nothing was measured and nothing failed."""

    def name(point: MeasuredPoint) -> str:
        at = f" at a global batch of {count(point.global_batch_size)}" if batches else ""
        return named(point.devices, kind) + at

    sentences = []
    if bases:
        batch = batches.best if batches and batches.best else next(iter(bases))
        of_batch = [point for point in points if point.global_batch_size == batch]
        shown_of_batch = [one for one in shown if one.global_batch_size == batch]
        sentences += [batches.sentence(kind)] if batches else []
        sentences += _devices(of_batch, shown_of_batch, bases[batch], batches is not None, kind)
        sentences += [*_data_parallel(shown_of_batch, kind), *_unsteady(points, name)]
        sentences += [*_disturbed(points, name), *_other_batch(points)]
    failures = _failures(points, name)
    return " ".join([*sentences, *([failures] if failures else [])]) or None


def _devices(
    points: Sequence[MeasuredPoint], shown: Sequence[Point], base: MeasuredPoint, has_batches: bool, kind: str
) -> list[str]:
    """Say how much more devices bring at one global batch, and what limits them."""
    line = sorted((one for one in shown if one.speedup and one.strategy != "dp"), key=lambda one: one.devices)
    line = [one for one in line if one.strategy == base.strategy or one.devices > base.devices]
    if has_batches and len(line) == 1:
        return []
    batch = f"With {count(base.global_batch_size)}: " if has_batches else ""
    return [batch + _gain(line, kind), *_limit_sentence(points, line, base, kind)]


def _gain(line: Sequence[Point], kind: str) -> str:
    if len(line) == 1:
        speed = f"{number(line[0].samples_per_s)} samples/s; " if line[0].samples_per_s else ""
        return f"{named(line[0].devices, kind)}: {speed}a speed-up needs a second size."
    knee = _knee(line)
    at = line.index(knee)
    figures = f"{named(knee.devices, kind)}: {knee.speedup:.1f}x, {knee.efficiency:.0%}"
    if at == len(line) - 1:
        return f"{figures}; the largest size is still worth its cost."
    following = line[at + 1]
    step = _step_words(knee, following, kind)
    return f"{step}." if at == 0 else f"{figures}; {step}."


def _knee(line: Sequence[Point]) -> Point:
    """The last size before additional devices are no longer worth their cost."""
    for one, following in pairwise(line):
        gain = (following.speedup or 0) / (one.speedup or 1) - 1
        if gain < WORTHWHILE * (following.devices / one.devices - 1):
            return one
    return line[-1]


def _step_words(one: Point, following: Point, kind: str) -> str:
    gain, ratio = (following.speedup or 0) / (one.speedup or 1) - 1, following.devices / one.devices
    cost = "twice" if ratio == 2 else f"{ratio:g} times"
    larger = named(following.devices, kind)
    figures = f"{following.speedup:.1f}x, {following.efficiency:.0%}"
    if gain <= 0:
        return f"{larger} ({figures}) are no faster than {one.devices}, for {cost} the cost"
    return f"{larger} ({figures}) gain {gain:.0%} more for {cost} the cost"


def _limit_sentence(
    points: Sequence[MeasuredPoint], line: Sequence[Point], base: MeasuredPoint, kind: str
) -> list[str]:
    """Name the limit of the first size beyond the knee, else of the largest one."""
    at = min(line.index(_knee(line)) + 1, len(line) - 1)
    size = line[at]
    point = next(p for p in points if (p.devices, p.strategy) == (size.devices, size.strategy))
    limit = limit_of(point, base)
    return [f"Limit on {named(size.devices, kind)}: {limit.words}."] if limit else []


def _data_parallel(shown: Sequence[Point], kind: str) -> list[str]:
    speedups = {(one.strategy, one.devices): one.speedup for one in shown if one.speedup}
    return [
        f"DataParallel on {named(devices, kind)}: {speedup:.1f}x, DDP: {speedups['ddp', devices]:.1f}x."
        for (strategy, devices), speedup in speedups.items()
        if strategy == "dp" and ("ddp", devices) in speedups
    ]


def _unsteady(points: Sequence[MeasuredPoint], name: Name) -> list[str]:
    """Name the sizes whose runs still differ."""
    names = [
        f"{name(point)} ({spread_of_medians(point.figures):.0%} in {plural(len(point.figures), 'run')})"
        for point in points
        if len(point.figures) > 1 and not is_steady(point.figures)
    ]
    return [f"Runs differ on {as_list(names)}: measure again on a quiet machine."] if names else []


def _disturbed(points: Sequence[MeasuredPoint], name: Name) -> list[str]:
    """Name the sizes whose ranks waited for CPUs that something else used."""
    steps = [(point, mean_step(point.figures, point.devices, point.nodes)) for point in points]
    names = [
        f"{name(point)} ({step.disturbed_share:.0%} of the step)"
        for point, step in steps
        if step is not None and step.disturbed_share >= DISTURBED_SHARE
    ]
    return [f"Ranks waited for CPUs that something else used, on {as_list(names)}."] if names else []


def _other_batch(points: Sequence[MeasuredPoint]) -> list[str]:
    """Say where the script did not take the batch that the study gave it."""
    for point in points:
        rates = [one.samples_per_step for one in point.figures if one.samples_per_step]
        batch = point.global_batch_size
        if batch and rates and abs(median(rates) / batch - 1) > SAME_BATCH:
            return [
                f"A step had {number(median(rates))} samples where the study gave it {count(batch)}: "
                "the script must take the batch of one rank."
            ]
    return []


def _failures(points: Sequence[MeasuredPoint], name: Name) -> str | None:
    named_by_problem: dict[str, list[str]] = {}
    for point in points:
        if point.problem:
            named_by_problem.setdefault(point.problem, []).append(name(point))
    sentences = [f"{as_list(names, 4)}: {problem}" for problem, names in named_by_problem.items()]
    return " ".join(one if one.endswith(".") else f"{one}." for one in sentences) or None


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
    shown = [_point(point, bases[point.global_batch_size]) if point.figures else _unmeasured(point) for point in points]
    batches = compared(points)
    return Judgement(shown, verdict(points, shown, bases, batches, kind) if is_ended else None, batches)


def _bases(points: Sequence[MeasuredPoint]) -> Mapping[int | None, MeasuredPoint]:
    """The point that others of the same global batch are compared with: a single process, else the smallest."""
    bases: dict[int | None, MeasuredPoint] = {}
    for point in sorted(points, key=lambda one: (one.strategy != "single", one.strategy == "dp", one.devices)):
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


# What the points of a scaling study mean, in words. Pure.

RULE_OF_THUMB = {2: (1.8, 1.8), 4: (3.5, 3.5), 8: (6.0, 7.0)}
"""Devices -> speed-up that is commonly quoted for DDP on the GPUs of one machine. Li et al. 2020 (arXiv:2006.15704)
measured how it depends on model, bucket size and network."""
