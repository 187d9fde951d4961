"""The points of a scaling study: the trials of each, and what comes next."""

from __future__ import annotations

from typing import Any

from dashboard.service.service import Service
from db.studies.figures import Figures
from db.studies.studies import ScalingView
from domain.scaling import plan
from domain.scaling.measurement import RunFigures
from domain.spec import RunSpec
from domain.studies import StudyAction, Trial


def next_actions(service: Service, study: ScalingView) -> list[StudyAction]:
    """Decide from the trials and their figures; an empty list means to wait."""
    figures = {trial.number: figures_of(study, trial, service.figures) for trial in study.trials}
    return plan.next_actions(study.plan, study.trials, figures, study.stop_requested_at is not None)


def figures_of(study: ScalingView, trial: Trial, figures: Figures) -> RunFigures | None:
    """Return the figures of a trial whose run has ended; None where it made too few steps or failed."""
    return figures.of(trial, study.plan.steps_of(study.plan.points[trial.params["point"]]))


def new_params(study: ScalingView, number: int) -> dict[str, Any]:
    """Return the parameters of a trial: the point that it measures."""
    return {"point": number}


def spec(study: ScalingView, params: dict[str, Any]) -> RunSpec:
    """Return the spec of a trial. Raises ValidationError."""
    return plan.run_spec(study.spec, study.plan.points[params["point"]])


def hidden_points(study: ScalingView) -> set[int]:
    """Return the points with a run that is hidden from the actor: nothing of them is shown."""
    return {trial.params["point"] for trial in study.hidden}


def trials_of(study: ScalingView, number: int) -> list[Trial]:
    """Return the trials of a point in the order of their launch; none of a hidden one."""
    return [] if number in hidden_points(study) else plan.trials_of(study.trials, number)
