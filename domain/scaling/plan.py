"""The plan of a scaling study: its points, which run comes next, and how devices lie on nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from domain.messages import State
from domain.scaling.measurement import MOST_RUNS, SHORTEST_S, WARMUP_STEPS, RunFigures, is_steady
from domain.spec import RunSpec
from domain.studies import StudyAction, StudyKind, Trial

Mode = Literal["weak", "strong"]


class PlannedPoint(BaseModel):
    """A number of devices, in strong scaling with a global batch, that a study measures."""

    model_config = ConfigDict(frozen=True)

    devices: int
    nodes: int
    strategy: str
    kind: str
    """Of device: cuda or cpu."""
    changes: dict[str, Any]
    """Fields of the spec of its runs."""
    global_batch_size: int | None = None
    """None in weak scaling, as the two below."""
    lr: float | None = None
    """None also where the script sets it."""
    steps: int | None = None
    """More with a smaller global batch; None: those of the study."""


class ScalingPlan(BaseModel):
    """What is measured by a scaling study."""

    model_config = ConfigDict(frozen=True)

    kind: ClassVar[StudyKind] = "scaling"
    noun: ClassVar[str] = "scaling study"
    metric: ClassVar[str] = "probe/steps_per_s"
    """The series by which a live run has made enough steps."""
    mode: Mode
    """weak: the batch of each rank stays; strong: the global batch stays, or each of several."""
    steps: int
    """Steps of each run that are measured; with several global batches, of the largest one."""
    points: list[PlannedPoint]

    def steps_of(self, point: PlannedPoint) -> int:
        """Return the steps of a point's runs that are measured."""
        return point.steps or self.steps

    def has_enough(self, trial: Trial) -> bool:
        """Whether a live run, which would not end by itself, has made the steps that are measured, for long enough."""
        steps = self.steps_of(self.points[trial.params["point"]])
        return (trial.last_step or 0) >= WARMUP_STEPS + steps and trial.logged_s >= SHORTEST_S


def run_spec(base: RunSpec, point: PlannedPoint) -> RunSpec:
    """Return the spec of a point's runs. Raises ValidationError."""
    return RunSpec.model_validate(base.model_dump() | point.changes)


# What a study does next: its runs are launched one after another.


def next_actions(
    plan: ScalingPlan, trials: Sequence[Trial], figures: Mapping[int, RunFigures | None], is_stopped: bool
) -> list[StudyAction]:
    """Decide from the trials and their figures by number; an empty list means to wait."""
    if live := [trial for trial in trials if trial.is_live]:
        ending = [one for one in live if not one.is_stopping and (is_stopped or plan.has_enough(one))]
        return [StudyAction("stop", trial.number) for trial in ending]
    # A script that ended by itself before enough was measured would on any other size, too.
    is_over = is_stopped or any(one.run_state == State.SUCCEEDED and not figures[one.number] for one in trials)
    points: Sequence[int] = () if is_over else range(len(plan.points))
    wanting = (at for at in points if _needs_run([figures[one.number] for one in trials_of(trials, at)]))
    return [StudyAction("launch", at) for at in islice(wanting, 1)] or [StudyAction("end")]


def trials_of(trials: Sequence[Trial], point: int) -> list[Trial]:
    """Return the trials of a point in the order of their launch; those whose run was deleted are measured again."""
    return [one for one in trials if one.params["point"] == point and (one.run_id or one.is_settled)]


def _needs_run(figures: Sequence[RunFigures | None]) -> bool:
    """Whether a point is measured too few times; one that failed is not tried again."""
    measured = [one for one in figures if one is not None]
    return len(measured) == len(figures) < MOST_RUNS and not is_steady(measured)


# How a number of devices is divided over nodes.

DEFAULT_SIZES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Layout:
    """Devices on nodes that have equally many each."""

    devices: int
    nodes: int


def layout(devices: int, capacities: Sequence[int]) -> Layout | None:
    """Divide devices over the fewest nodes of these capacities; None where they do not hold them."""
    for nodes in range(1, len(capacities) + 1):
        if devices % nodes == 0 and sum(size >= devices // nodes for size in capacities) >= nodes:
            return Layout(devices, nodes)
    return None
