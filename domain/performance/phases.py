"""The time of a rank's steps, divided into phases that add up to it. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from domain.text.formats import UNKNOWN, change, milliseconds

TITLES = {
    "data_s": "Waiting for data",
    "copy_s": "Copies to the device",
    "forward_s": "Forward",
    "backward_s": "Backward",
    "exposed_comm_s": "Waiting for communication",
    "optimizer_s": "Optimizer",
    "checkpoint_s": "Checkpoints",
    "other_s": "Other",
}
"""Phase -> its title, in the order in which they are shown; communication behind a computation delays nobody."""
PHASES = tuple(TITLES)
"""Together they are the step."""
BESIDES = ("called_comm_s", "cpu_wait_s")
"""Parts of the phases: collectives that the script itself calls (of `exposed_comm_s`); ready, but without a CPU."""
TAG = "rank{rank}/phases/{name}"
LEAST_S = 1e-5
"""A shorter phase does not matter in a step."""


def in_words(seconds: float, change_percent: float | None = None) -> str:
    """Return a phase's mean, with its change to another run's: 12.3 ms (+4 %)."""
    if seconds < LEAST_S:
        return UNKNOWN
    return milliseconds(seconds) + ("" if change_percent is None else f" ({change(change_percent)})")


@dataclass(frozen=True)
class PhaseTotals:
    """Seconds that one rank has spent in each phase from its first step up to some of its steps."""

    rank: int
    node: str
    steps: Sequence[int]
    """Strictly increasing."""
    walls: Sequence[float]
    """Time of each by the node's clock, in seconds since the epoch."""
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Phase -> total at each step; a phase that never occurred is missing."""

    def total(self, name: str, step: float) -> float:
        """Return the total at a step between the first and the last one, interpolated between two records."""
        totals = self.seconds.get(name)
        return _interpolated(self.steps, totals, step) if totals else 0.0

    def wall(self, step: float) -> float:
        """Return the time at which the rank made a step between the first and the last one."""
        return _interpolated(self.steps, self.walls, step)

    def mean(self, first: float, last: float) -> dict[str, float]:
        """Return the seconds of each phase in a step, as the mean over the steps after `first` up to `last`."""
        return {
            name: (self.total(name, last) - self.total(name, first)) / (last - first) for name in (*PHASES, *BESIDES)
        }


def breakdown(totals: PhaseTotals, *, is_whole: bool) -> dict[str, float | int] | None:
    """Return the number of steps and the mean seconds of a step and of its phases; None without a step.

    `is_whole`: from the rank's first step on, else from the first record on."""
    first = 1 if is_whole else totals.steps[0]
    steps = totals.steps[-1] - first
    if steps <= 0:
        return None
    start = {name: 0.0 if is_whole else totals.total(name, first) for name in PHASES}
    means = {name: (totals.total(name, totals.steps[-1]) - start[name]) / steps for name in PHASES}
    return {"steps": steps, "step_s": sum(means.values()), **means}


def mean_of_ranks(ranks: Collection[PhaseTotals]) -> dict[str, float]:
    """Return the mean seconds of a step and of its phases over ranks and steps; empty without a rank."""
    means = [rank for totals in ranks if (rank := breakdown(totals, is_whole=True))]
    return {name: fmean(rank[name] for rank in means) for name in ("step_s", *PHASES) if means}


def _interpolated(steps: Sequence[int], values: Sequence[float], step: float) -> float:
    at = min(bisect_left(steps, step), len(steps) - 1)
    if at == 0 or step >= steps[at]:
        return values[at]
    share = (step - steps[at - 1]) / (steps[at] - steps[at - 1])
    return values[at - 1] + share * (values[at] - values[at - 1])
