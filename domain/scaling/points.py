"""The sizes of a study, and what keeps more devices from being as much faster, from the phases of a step. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from domain.performance.phases import BESIDES, PHASES
from domain.performance.slow_ranks import SlowRank, sentence
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
    step = mean_step(point.figures, point.devices, point.nodes)
    base_step = mean_step(base.figures, base.devices, base.nodes)
    if step is None or base_step is None:
        return None
    return limit_alone(step) if point is base else limit_against(step, base_step)


# What keeps more devices from being as much faster, from the phases of a step. Pure.

DATA, COMMUNICATION, COMPUTE, GAPS, CORES, SLOW, OTHER = (
    "data",
    "communication",
    "compute",
    "launch gaps",
    "CPU cores",
    "slow rank",
    "other",
)
GROUPS: Mapping[str, tuple[str, ...]] = {
    DATA: ("data_s", "copy_s"),
    COMMUNICATION: ("exposed_comm_s",),
    COMPUTE: ("forward_s", "backward_s", "optimizer_s"),
    OTHER: ("other_s",),
}
"""Phases by what they are spent on; checkpoints are not part of the measurement."""
LOST_SHARE = 0.1
"""Share of a step that must be lost against the ideal before anything limits it."""
MAIN_SHARE = 0.25
BUSY_CPU_PERCENT = 85.0
IDLE_CPU_PERCENT = 50.0
"""Below it, ranks that wait do not wait for a core."""
IDLE_GPU_PERCENT = 60.0
DISTURBED_SHARE = 0.2
"""Share of a step without a CPU from which figures say little about the script."""


@dataclass(frozen=True)
class Step:
    """The mean step of a point's runs."""

    phases: Mapping[str, float]
    samples_per_device: float
    cpu_percent: float | None
    gpu_percent: float | None
    ranks_per_core: float | None
    has_network: bool = False
    """Whether ranks on more than one node talk to each other."""
    uneven_s: float = 0.0
    """For how long a rank waits, in the mean, because another one has more work than it."""
    slow: SlowRank | None = None
    """The rank that the others wait for in most of the runs."""

    @property
    def seconds(self) -> float:
        """Seconds without checkpoints."""
        return sum(self.group(name) for name in GROUPS)

    @property
    def disturbed_share(self) -> float:
        """Share of the step without a CPU, although there are as many cores as ranks: others use them."""
        has_cores = self.ranks_per_core is not None and self.ranks_per_core <= 1
        return self.phases["cpu_wait_s"] / self.seconds if has_cores else 0.0

    @property
    def slow_s(self) -> float:
        """Seconds that all ranks lose by the slow one."""
        return self.slow.lost_share * self.seconds if self.slow else 0.0

    @property
    def is_starved(self) -> bool:
        """Whether the slow rank lacks a CPU, on a node that has a rank for each core."""
        is_full = self.ranks_per_core is not None and self.ranks_per_core >= 1
        return is_full and self.slow is not None and self.slow.cause == "cpu"

    def group(self, name: str) -> float:
        """Return the seconds of a group of phases."""
        return sum(self.phases[phase] for phase in GROUPS[name])


@dataclass(frozen=True)
class Limit:
    """What limits a point, and that in words."""

    cause: str
    words: str


def mean_step(runs: Sequence[RunFigures], devices: int, nodes: int) -> Step | None:
    """Return the mean step of a point; None where a run has no phases."""
    if not runs or not all(run.phases for run in runs):
        return None
    phases = {name: fmean(run.phases[name] for run in runs) for name in (*PHASES, *BESIDES)}
    samples = fmean(run.samples_per_step or devices for run in runs) / devices
    slow = [run.slow for run in runs if run.slow]
    return Step(
        phases,
        samples,
        _mean([run.cpu_percent for run in runs]),
        _mean([run.gpu_percent for run in runs]),
        max((run.ranks_per_core for run in runs if run.ranks_per_core is not None), default=None),
        has_network=nodes > 1,
        uneven_s=fmean(run.uneven_s for run in runs),
        slow=slow[-1] if 2 * len(slow) > len(runs) else None,
    )


def limit_alone(step: Step) -> Limit:
    """Name what the step of the smallest size is mostly spent on."""
    if step.slow_s >= MAIN_SHARE * step.seconds:
        return Limit(SLOW, _words(SLOW, step, step.slow_s))
    for cause in (DATA, COMMUNICATION):
        if step.group(cause) >= MAIN_SHARE * step.seconds:
            return Limit(cause, _words(cause, step, step.group(cause)))
    cause = GAPS if _has_gaps(step) else COMPUTE
    return Limit(cause, _words(cause, step, step.group(COMPUTE)))


def limit_against(step: Step, base: Step) -> Limit | None:
    """Name the slow rank, else the phases that grew most against the ideal; None where hardly anything is lost."""
    ideal = step.samples_per_device / base.samples_per_device
    lost_s = step.seconds - ideal * base.seconds
    if lost_s < LOST_SHARE * step.seconds:
        return None
    excess = {name: step.group(name) - ideal * base.group(name) for name in GROUPS}
    cause = max(excess, key=lambda name: excess[name])
    waited_s = step.phases["cpu_wait_s"] - ideal * base.phases["cpu_wait_s"]
    on_cores_s = excess[COMPUTE] + excess[COMMUNICATION] - step.uneven_s
    if step.slow_s - ideal * base.slow_s >= 2 * MAIN_SHARE * lost_s and not step.is_starved:
        cause = SLOW
    elif _shares_cores(step, on_cores_s / lost_s, waited_s / lost_s):
        cause = CORES
    elif cause in (COMPUTE, OTHER) and _has_gaps(step):
        cause = GAPS
    return Limit(cause, _words(cause, step, excess.get(cause, lost_s)))


def _shares_cores(step: Step, on_cores: float, waited: float) -> bool:
    """Whether ranks on CPUs take each other's cores: `on_cores` and `waited` are shares of the lost time.

    gloo copies and reduces on the cores, too. Ranks that wait for a network, or for a rank with more work, leave them
    idle.
    """
    if step.ranks_per_core is None:
        return False
    is_busy = step.cpu_percent is not None and step.cpu_percent >= BUSY_CPU_PERCENT
    is_idle = step.cpu_percent is not None and step.cpu_percent < IDLE_CPU_PERCENT
    is_full = is_busy or (step.ranks_per_core >= 1 and not step.has_network and not is_idle)
    return step.ranks_per_core > 1 or waited >= 2 * MAIN_SHARE or (is_full and on_cores >= MAIN_SHARE)


def _has_gaps(step: Step) -> bool:
    """Whether a GPU is idle for want of work that the host has launched."""
    return step.gpu_percent is not None and step.gpu_percent < IDLE_GPU_PERCENT


def _words(cause: str, step: Step, seconds: float) -> str:
    share, exposed = (f"{part / step.seconds:.0%} of the step" for part in (seconds, step.group(COMMUNICATION)))
    uneven = step.uneven_s >= step.group(COMMUNICATION) / 2
    return {
        DATA: f"data: waiting for it takes {step.group(DATA) / step.seconds:.0%} of the step",
        COMMUNICATION: f"communication: {exposed} that no computation hides"
        + (", most of it waiting for the rank with the most work" if uneven else ""),
        COMPUTE: f"compute: {share}",
        GAPS: f"gaps between launches: the GPUs are busy for {step.gpu_percent or 0:.0f} % of the time",
        CORES: "the ranks share the cores",
        SLOW: _slow_words(step.slow),
        OTHER: f"the script's own code between the passes: {share}",
    }[cause]


def _slow_words(slow: SlowRank | None) -> str:
    words = sentence(slow).removesuffix(".") if slow else SLOW
    return words[0].lower() + words[1:]


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return fmean(numbers) if numbers else None
