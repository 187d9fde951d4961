"""Speed-up and efficiency of a study's points, and what they mean in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from domain.scaling import limits
from domain.scaling.limits import Limit
from domain.scaling.measurement import RunFigures, is_steady, quartiles, spread, spread_of_medians
from domain.text.formats import as_list, number, plural

RULE_OF_THUMB = {2: (1.8, 1.8), 4: (3.5, 3.5), 8: (6.0, 7.0)}
"""Devices -> speed-up that is commonly quoted for DDP on the GPUs of one machine. Li et al. 2020 (arXiv:2006.15704)
measured how it depends on model, bucket size and network."""
WORTHWHILE = 0.5
"""Share of the additional devices that must arrive as additional throughput."""


@dataclass(frozen=True)
class MeasuredPoint:
    """One size of a study with the figures of its runs."""

    devices: int
    nodes: int
    strategy: str = "ddp"
    figures: Sequence[RunFigures] = ()
    run: str | None = None
    """The last measured run, else the one that failed."""
    problem: str | None = None
    """Why it could not be measured, or not once more."""


@dataclass(frozen=True)
class Point:
    """One size of a study as it is shown."""

    devices: int
    nodes: int
    strategy: str
    run: str | None
    samples_per_s: float | None
    """Median over its runs; None before, and where the batch is unknown."""
    speedup: float | None
    """Throughput over that of the smallest size, or of a single process where one was measured."""
    efficiency: float | None
    spread: float | None
    """Inter-quartile range over all windows, as a share of the median."""
    limit: str | None
    low: float | None = None
    """Speed-up at the lower quartile."""
    high: float | None = None
    """Speed-up at the upper quartile."""
    problem: str | None = None


@dataclass(frozen=True)
class Judgement:
    """The points of a study, and a verdict in words; None before two sizes are measured."""

    points: list[Point] = field(default_factory=list)
    verdict: str | None = None


def judge(points: Sequence[MeasuredPoint], kind: str, is_ended: bool) -> Judgement:
    """Compare the points with the smallest one; `kind` of device: cuda or cpu."""
    measured = [point for point in points if point.figures]
    if not measured:
        return Judgement(
            [_unmeasured(point) for point in points], _failures(points, kind) if is_ended else None
        )
    base = min(
        measured, key=lambda point: (point.strategy != "single", point.strategy == "dp", point.devices)
    )
    shown = [_point(point, base) if point.figures else _unmeasured(point) for point in points]
    return Judgement(shown, _verdict(points, shown, base, kind) if is_ended else None)


def _point(point: MeasuredPoint, base: MeasuredPoint) -> Point:
    speedup, (low, high) = _rate(point) / _rate(base), quartiles(point.figures)
    middle = median(figures.steps_per_s for figures in point.figures)
    limit = limit_of(point, base)
    return Point(
        point.devices, point.nodes, point.strategy, point.run,
        samples_per_s=_rate(point) if _knows_batch(point) else None,
        speedup=speedup,
        efficiency=speedup * base.devices / point.devices,
        spread=spread(point.figures),
        limit=limit.cause if limit else None,
        low=speedup * min(1.0, low / middle),
        high=speedup * max(1.0, high / middle),
        problem=point.problem,
    )  # fmt: skip


def named(devices: int, kind: str) -> str:
    """Return a number of devices in words: 4 GPUs, 1 process."""
    return plural(devices, "GPU") if kind == "cuda" else plural(devices, "process", "processes")


def limit_of(point: MeasuredPoint, base: MeasuredPoint) -> Limit | None:
    """Name what limits a point; None where nothing does or the phases are unknown."""
    step = limits.mean_step(point.figures, point.devices, point.nodes)
    base_step = limits.mean_step(base.figures, base.devices, base.nodes)
    if step is None or base_step is None:
        return None
    return limits.limit_alone(step) if point is base else limits.limit(step, base_step)


def _unmeasured(point: MeasuredPoint) -> Point:
    nothing = dict.fromkeys(("samples_per_s", "speedup", "efficiency", "spread"))
    return Point(
        point.devices, point.nodes, point.strategy, point.run, limit=None, problem=point.problem, **nothing
    )


def _rate(point: MeasuredPoint) -> float:
    """Samples per second; where the batch is unknown, one sample per device and step."""
    return median(
        figures.steps_per_s * (figures.samples_per_step or point.devices) for figures in point.figures
    )


def _knows_batch(point: MeasuredPoint) -> bool:
    return all(figures.samples_per_step for figures in point.figures)


def _verdict(points: Sequence[MeasuredPoint], shown: Sequence[Point], base: MeasuredPoint, kind: str) -> str:
    line = sorted((one for one in shown if one.speedup and one.strategy != "dp"), key=lambda one: one.devices)
    line = [one for one in line if one.strategy == base.strategy or one.devices > base.devices]
    sentences = [_gain(line, kind), *_limit_sentence(points, line, base, kind), *_data_parallel(shown, kind)]
    sentences += [*_unsteady(points, kind), *_disturbed(points, kind)]
    failures = _failures(points, kind)
    sentences += [failures] if failures else []
    return " ".join(sentences)


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


def _unsteady(points: Sequence[MeasuredPoint], kind: str) -> list[str]:
    """Name the sizes whose runs still differ."""
    names = [
        f"{named(point.devices, kind)} ({spread_of_medians(point.figures):.0%} in {plural(len(point.figures), 'run')})"
        for point in points
        if len(point.figures) > 1 and not is_steady(point.figures)
    ]
    return [f"Runs differ on {as_list(names)}: measure again on a quiet machine."] if names else []


def _disturbed(points: Sequence[MeasuredPoint], kind: str) -> list[str]:
    """Name the sizes whose ranks waited for CPUs that something else used."""
    steps = [(point, limits.mean_step(point.figures, point.devices, point.nodes)) for point in points]
    names = [
        f"{named(point.devices, kind)} ({step.disturbed_share:.0%} of the step)"
        for point, step in steps
        if step is not None and step.disturbed_share >= limits.DISTURBED_SHARE
    ]
    return [f"Ranks waited for CPUs that something else used, on {as_list(names)}."] if names else []


def _failures(points: Sequence[MeasuredPoint], kind: str) -> str | None:
    failed = [point for point in points if point.problem]
    sentences = [f"{named(point.devices, kind)}: {point.problem}" for point in failed]
    return " ".join(one if one.endswith(".") else f"{one}." for one in sentences) or None
