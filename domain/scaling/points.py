"""The sizes of a study: numbers of devices, at one or several global batches. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from domain.scaling import limits
from domain.scaling.limits import Limit
from domain.scaling.measurement import RunFigures
from domain.text.formats import plural


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
    global_batch_size: int | None = None
    """None in weak scaling, where it follows from the number of devices."""
    lr: float | None = None
    """The learning rate of its ranks; None where the script sets it."""
    samples: int | None = None
    """Samples after which its losses were read; None as for the batch."""

    @property
    def rate(self) -> float:
        """Samples per second; where the batch is unknown, one sample per device and step."""
        return median(one.steps_per_s * (one.samples_per_step or self.devices) for one in self.figures)

    @property
    def samples_per_s(self) -> float | None:
        """Samples per second; None where nothing is measured or the batch is unknown."""
        is_known = self.figures and all(one.samples_per_step for one in self.figures)
        return self.rate if is_known else None


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
    """Throughput over that of the smallest size with this batch, or of a single process where one was measured."""
    efficiency: float | None
    spread: float | None
    """Inter-quartile range over all windows, as a share of the median."""
    limit: str | None
    low: float | None = None
    """Speed-up at the lower quartile."""
    high: float | None = None
    """Speed-up at the upper quartile."""
    problem: str | None = None
    global_batch_size: int | None = None
    """None in weak scaling, where it follows from the number of devices."""


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
