"""A scaling study as people read it: its state, its points and the verdict."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dashboard.studies.scaling_points import figures_of, hidden_points, trials_of
from db.studies.figures import Figures
from db.studies.studies import ScalingView
from domain.messages import State
from domain.scaling.batches import BatchComparison, rule_in_words
from domain.scaling.judgement import Judgement, judge
from domain.scaling.measurement import SHORTEST_S, WARMUP_STEPS, RunFigures
from domain.scaling.points import MeasuredPoint
from domain.studies import StudyState, Trial, state_of


def judgement(study: ScalingView, figures: Figures) -> Judgement:
    """Judge the points of a study by the runs that have ended."""
    points = [_measured(study, number, figures) for number in range(len(study.plan.points))]
    return judge(points, study.plan.points[0].kind, study.ended_at is not None)


def state(study: ScalingView, judged: Judgement) -> StudyState:
    """Return the state of a study: it failed without a speed-up, and with a single size if that was not measured.

    Hidden points count neither way."""
    hidden = hidden_points(study)
    sizes = {point.devices for number, point in enumerate(judged.points) if number not in hidden}
    measured = {point.devices for point in judged.points if point.speedup is not None}
    return state_of(study.ended_at, study.stop_requested_at, len(measured) >= min(2, len(sizes)))


def document(study: ScalingView, figures: Figures) -> dict[str, Any]:
    """Return a study as the API answers with it."""
    judged = judgement(study, figures)
    return {
        "id": study.id,
        "state": state(study, judged),
        "by": study.by,
        "mode": study.plan.mode,
        "steps": study.plan.steps,
        "target": study.spec.target,
        "points": [asdict(point) for point in judged.points],
        "batches": _batches(study, judged.batches) if judged.batches else None,
        "verdict": judged.verdict,
        "message": study.message,
    }


def rate_rule(study: ScalingView) -> str:
    """Return in words how the learning rate of a study follows its global batches."""
    points = study.plan.points
    return rule_in_words(study.spec, [point.global_batch_size or 0 for point in points], points[0].lr is not None)


def _batches(study: ScalingView, compared: BatchComparison) -> dict[str, Any]:
    return {
        "loss": compared.loss_name,
        "samples": compared.samples,
        "lr_rule": rate_rule(study),
        "flat_from": compared.flat_from,
        "best": compared.best,
        "batches": [asdict(one) for one in compared.batches],
    }


def _measured(study: ScalingView, number: int, figures: Figures) -> MeasuredPoint:
    point, trials = study.plan.points[number], trials_of(study, number)
    steps, batch = study.plan.steps_of(point), point.global_batch_size
    by_run = {trial.run_id: figures_of(study, trial, figures) for trial in trials if trial.run_id}
    measured = [one for one in by_run.values() if one is not None]
    is_hidden = number in hidden_points(study)
    return MeasuredPoint(
        point.devices,
        point.nodes,
        point.strategy,
        measured,
        run=next((run for run in reversed(by_run) if by_run[run]), next(reversed(by_run), None)),
        problem=HIDDEN if is_hidden else _problem(study, steps, trials[-1], by_run) if trials else None,
        global_batch_size=batch,
        lr=point.lr,
        samples=batch and batch * (WARMUP_STEPS + steps),
    )


HIDDEN = "its run is in a project that you do not see"


def _problem(study: ScalingView, steps: int, last: Trial, by_run: dict[str, RunFigures | None]) -> str | None:
    """Why the last trial of a point counts for nothing; None where it is measured or still to come."""
    run, run_state = last.run_id, last.run_state
    if run is None or run_state is None:
        return last.message
    if not run_state.is_terminal or by_run[run]:
        return None
    if run_state == State.FAILED:
        return f"run {run} failed: {last.run_message or 'without a message'}"
    if study.stop_requested_at is not None:
        return None if any(by_run.values()) else "the study was stopped before it was measured"
    step = last.last_step or 0
    if run_state == State.SUCCEEDED:
        return f"run {run} ended by itself at step {step}, {_too_soon(step, steps)}"
    return f"run {run} {run_state.value} at step {step}, before {steps} steps were measured"


def _too_soon(step: int, steps: int) -> str:
    """Say how the run was too short, how to make it longer, and that the study ended with it."""
    if step < WARMUP_STEPS + steps:
        needed = f"and {WARMUP_STEPS} steps of warm-up and {steps} more are measured"
        advice = "let the script train longer (more epochs, more data), or measure fewer steps with --steps"
    else:
        needed = f"after less than the {SHORTEST_S:.0f} s that a measurement takes"
        advice = "let the script train longer (more epochs, more data)"
    return (
        f"{needed}: {advice}. A script that takes its length from {{max_steps}} or {{epochs}}, such as "
        "-- --epochs '{epochs}', is given as much as it needs. The study ended here: other sizes would end as soon"
    )
