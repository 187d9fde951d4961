"""A scaling study as people read it: its state, its points and the verdict."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from db.scaling.studies import Figures, RunOfStudy, StudyView
from domain.messages import State
from domain.scaling.batches import BatchComparison, rule_in_words
from domain.scaling.judgement import Judgement, judge
from domain.scaling.measurement import SHORTEST_S, WARMUP_STEPS, RunFigures
from domain.scaling.points import MeasuredPoint

StudyState = Literal["running", "stopping", "succeeded", "failed", "stopped"]


def judgement(study: StudyView, figures: Figures) -> Judgement:
    """Judge the points of a study by the runs that have ended."""
    points = [_measured(study, number, figures) for number in range(len(study.points))]
    return judge(points, study.points[0]["kind"], study.ended_at is not None)


def state(study: StudyView, judged: Judgement) -> StudyState:
    """Return the state of a study: it failed without a speed-up, and with a single size if that was not measured.

    Hidden points count neither way."""
    if study.ended_at is None:
        return "running" if study.stop_requested_at is None else "stopping"
    if study.stop_requested_at is not None:
        return "stopped"
    sizes = {point.devices for number, point in enumerate(judged.points) if number not in study.hidden}
    measured = {point.devices for point in judged.points if point.speedup is not None}
    return "succeeded" if len(measured) >= min(2, len(sizes)) else "failed"


def document(study: StudyView, figures: Figures) -> dict[str, Any]:
    """Return a study as the API answers with it."""
    judged = judgement(study, figures)
    return {
        "id": study.id,
        "state": state(study, judged),
        "by": study.by,
        "mode": study.mode,
        "steps": study.steps,
        "target": study.spec.target,
        "points": [asdict(point) for point in judged.points],
        "batches": _batches(study, judged.batches) if judged.batches else None,
        "verdict": judged.verdict,
    }


def rate_rule(study: StudyView) -> str:
    """Return in words how the learning rate of a study follows its global batches."""
    batches = [point["global_batch_size"] for point in study.points]
    return rule_in_words(study.spec, batches, study.points[0]["lr"] is not None)


def _batches(study: StudyView, compared: BatchComparison) -> dict[str, Any]:
    return {
        "loss": compared.loss_name,
        "samples": compared.samples,
        "lr_rule": rate_rule(study),
        "flat_from": compared.flat_from,
        "best": compared.best,
        "batches": [asdict(one) for one in compared.batches],
    }


def _measured(study: StudyView, number: int, figures: Figures) -> MeasuredPoint:
    point, runs = study.points[number], study.runs_of(number)
    steps, batch = study.steps_of(point), point.get("global_batch_size")
    by_run = {run.run_id: figures.of(run, steps) for run in runs}
    measured = [one for one in by_run.values() if one is not None]
    return MeasuredPoint(
        point["devices"],
        point["nodes"],
        point["strategy"],
        measured,
        run=next((run for run in reversed(by_run) if by_run[run]), runs[-1].run_id if runs else None),
        problem=HIDDEN if number in study.hidden else point.get("problem") or _problem(study, steps, runs, by_run),
        global_batch_size=batch,
        lr=point.get("lr"),
        samples=batch and batch * (WARMUP_STEPS + steps),
    )


HIDDEN = "its run is in a project that you do not see"


def _problem(study: StudyView, steps: int, runs: list[RunOfStudy], by_run: dict[str, RunFigures | None]) -> str | None:
    """Why the last run of a point counts for nothing; None where it is measured or still to come."""
    if not runs or not runs[-1].state.is_terminal or by_run[runs[-1].run_id]:
        return None
    run = runs[-1]
    if run.state == State.FAILED:
        return f"run {run.run_id} failed: {run.message or 'without a message'}"
    if study.stop_requested_at is not None:
        return None if any(by_run.values()) else "the study was stopped before it was measured"
    if run.state == State.SUCCEEDED:
        return f"run {run.run_id} ended by itself at step {run.last_step}, {_too_soon(run, steps)}"
    return f"run {run.run_id} {run.state.value} at step {run.last_step}, before {steps} steps were measured"


def _too_soon(run: RunOfStudy, steps: int) -> str:
    """Say how the run was too short, how to make it longer, and that the study ended with it."""
    if run.last_step < WARMUP_STEPS + steps:
        needed = f"and {WARMUP_STEPS} steps of warm-up and {steps} more are measured"
        advice = "let the script train longer (more epochs, more data), or measure fewer steps with --steps"
    else:
        needed = f"after less than the {SHORTEST_S:.0f} s that a measurement takes"
        advice = "let the script train longer (more epochs, more data)"
    return (
        f"{needed}: {advice}. A script that takes its length from {{max_steps}} or {{epochs}}, such as "
        "-- --epochs '{epochs}', is given as much as it needs. The study ended here: other sizes would end as soon"
    )
