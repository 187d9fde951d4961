"""The throughput of a study's runs, from the windows between the probe's records. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, median, quantiles

from domain.performance.phases import PHASES, PhaseTotals
from domain.performance.slow_ranks import SlowRank

WARMUP_STEPS = 20
"""Steps that are left out: caches fill, DDP rebuilds its buckets, cuDNN and the compiler choose."""
SHORTEST_S = 5.0
"""Seconds that a run steps at least before it is ended: the probe writes a record a second."""
TIMES_AS_LONG = 100
"""How many times the measured steps a run may make at most, so that fast ones step for long enough."""
WINDOWS = 10
MEASURED_SHARE = 0.5
"""Share of a study's steps that a run must have made after the warm-up for its figure to count."""
SMALL_SPREAD = 0.05
MOST_RUNS = 5
LOSS_FROM = 0.8
"""Share of a run's steps from which on the mean of a loss is the one that it reached: a single value says little."""
FEWEST_WINDOWS = 4
Progress = Sequence[tuple[int, float]]
"""(step, seconds of training up to it) at each record of the probe."""


@dataclass(frozen=True)
class Window:
    """Consecutive steps and the seconds they took."""

    steps: int
    seconds: float

    @property
    def steps_per_s(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


def windows(progress: Progress, steps: int) -> list[Window]:
    """Divide the progress after the warm-up into windows of at least a tenth of `steps`."""
    least = max(1, steps // WINDOWS)
    measured = [record for record in progress if record[0] >= WARMUP_STEPS]
    complete: list[Window] = []
    begin = measured[:1]
    for step, seconds in measured[1:]:
        if step - begin[0][0] >= least and seconds > begin[0][1]:
            complete.append(Window(step - begin[0][0], seconds - begin[0][1]))
            begin = [(step, seconds)]
    return complete


def uneven_s(ranks: Collection[Mapping[str, float]]) -> float:
    """Return for how long ranks wait for the one with the most work, from the mean step of each.

    Work is all but communication; being ready without a CPU is no work."""
    work = [sum(step[name] for name in PHASES) - step["exposed_comm_s"] - step["cpu_wait_s"] for step in ranks]
    return max(work) - fmean(work) if work else 0.0


@dataclass(frozen=True)
class RunFigures:
    """The measured figures of one run after its warm-up."""

    windows: Sequence[Window]
    samples_per_step: float | None
    """Over all ranks; None where neither the probe saw it nor the spec has it."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Mean seconds of a step in each phase over all ranks; empty where the probe did not record them."""
    cpu_percent: float | None = None
    gpu_percent: float | None = None
    ranks_per_core: float | None = None
    """On the node with the most ranks per core; None where ranks compute on GPUs."""
    uneven_s: float = 0.0
    """Seconds of a step that a rank waits, in the mean, for the one with the most work of its own."""
    slow: SlowRank | None = None
    """The rank that the others waited for."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """By series: the mean over the last fifth of the steps; infinite where one of them is not finite."""

    @property
    def steps_per_s(self) -> float:
        """Median over the windows."""
        return median(window.steps_per_s for window in self.windows)


def progress_of_phases(totals: PhaseTotals) -> list[tuple[int, float]]:
    """Return the progress of a rank without the time in which it wrote checkpoints."""
    names = [name for name in PHASES if name != "checkpoint_s"]
    return [(step, sum(totals.total(name, step) for name in names)) for step in totals.steps]


def progress_of_rates(rates: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the progress from (step, steps per second since the record before)."""
    progress = [(step, 0.0) for step, _ in rates[:1]]
    for (before, _), (step, rate) in pairwise(rates):
        if step > before and rate > 0:
            progress.append((step, progress[-1][1] + (step - before) / rate))
    return progress


def mean_loss(values: Sequence[float]) -> float | None:
    """Return the loss that a run reached from its last values; infinite where one is not finite, None without any."""
    if not values:
        return None
    return fmean(values) if all(map(math.isfinite, values)) else math.inf


def is_measured(run_windows: Sequence[Window], steps: int) -> bool:
    """Whether a run made enough steps of a study after its warm-up."""
    return sum(window.steps for window in run_windows) >= MEASURED_SHARE * steps


def spread_of_medians(runs: Sequence[RunFigures]) -> float:
    """Return the distance of the runs' medians from each other, as a share of their median."""
    medians = [run.steps_per_s for run in runs]
    return (max(medians) - min(medians)) / median(medians)


def is_steady(runs: Sequence[RunFigures]) -> bool:
    """Whether a point needs no further run: its runs agree, or the windows of a single one do."""
    if len(runs) == 1:
        return len(runs[0].windows) >= FEWEST_WINDOWS and spread(runs) <= SMALL_SPREAD
    return len(runs) > 1 and spread_of_medians(runs) <= SMALL_SPREAD


def quartiles(runs: Sequence[RunFigures]) -> tuple[float, float]:
    """Return the lower and upper quartile of the steps per second over all windows."""
    rates = [window.steps_per_s for run in runs for window in run.windows]
    lower, _, upper = quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
    return lower, upper


def spread(runs: Sequence[RunFigures]) -> float:
    """Return the inter-quartile range over all windows, as a share of the median."""
    lower, upper = quartiles(runs)
    return (upper - lower) / median(window.steps_per_s for run in runs for window in run.windows)
