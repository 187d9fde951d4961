"""The trials of a study: the parameters and state of each, its metric so far, and in a sweep its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.attempts import deliveries
from db.engine import Store
from db.metrics.series_names import public_name
from db.models import Attempt, Series, StudyTrial
from db.runs.run_requests import NewTrial, reopen
from domain.messages import State
from domain.studies import PRUNED, Trial


@dataclass(frozen=True)
class Result:
    """The result of an ended trial."""

    state: str
    value: float | None
    message: str | None
    device_hours: float | None


def add_unlaunched(store: Store, trial: NewTrial, message: str) -> None:
    """Store a trial that could not be launched, with the reason."""
    with store.write() as session:
        session.add(StudyTrial(rung=0, state=State.FAILED.value, message=message, **trial._asdict()))


def settle(store: Store, study_id: str, number: int, result: Result) -> None:
    """Store the result of a trial."""
    with store.write() as session:
        row = session.get_one(StudyTrial, (study_id, number))
        row.state, row.value, row.message = result.state, result.value, result.message
        row.device_hours = result.device_hours
        if result.state != PRUNED:
            row.pruned_at = None
        if result.state == State.SUCCEEDED:
            row.rung = len(row.rung_values or ())


def record_rungs(store: Store, study_id: str, number: int, values: Sequence[float | None]) -> None:
    """Store the metric of a trial at all rungs that it has reached."""
    with store.write() as session:
        session.get_one(StudyTrial, (study_id, number)).rung_values = list(values)


def pass_rung(store: Store, study_id: str, number: int) -> None:
    """Note that a trial has passed its next rung."""
    with store.write() as session:
        session.get_one(StudyTrial, (study_id, number)).rung += 1


def prune(store: Store, study_id: str, number: int, step: int, message: str) -> None:
    """Note that a trial is pruned, and why; its run is stopped by the caller."""
    with store.write() as session:
        row = session.get_one(StudyTrial, (study_id, number))
        row.pruned_at, row.message = step, message


def promote(store: Store, study_id: str, number: int, now: float) -> None:
    """Resume the run of a pruned trial from its last checkpoint: it passes the rung now.

    Raises NoSuchRun, Denied, WrongState, InvalidRequest."""
    with store.write() as session:
        row = session.get_one(StudyTrial, (study_id, number))
        row.rung += 1
        reopen(session, row.run_id or "", now, why=f"promoted at rung {row.rung} of its sweep")
        row.state = row.value = row.message = row.device_hours = row.pruned_at = None


def trials_of(session: Session, study_id: str, metric: str) -> list[Trial]:
    """Return the trials of a study by number, with the latest attempt of each one's run."""
    newest = select(func.max(Attempt.fence)).group_by(Attempt.run_id)
    query = (
        select(StudyTrial, Attempt)
        .outerjoin(Attempt, (Attempt.run_id == StudyTrial.run_id) & Attempt.fence.in_(newest))
        .where(StudyTrial.study_id == study_id)
        .order_by(StudyTrial.number)
    )
    rows = [(trial, attempt) for trial, attempt in session.execute(query)]
    live = [trial.run_id for trial, _ in rows if trial.run_id and trial.state is None]
    of_metric = _series_of_metric(session, live, metric)
    awaited = deliveries.awaiting_points(session, [attempt.fence for _, attempt in rows if attempt])
    return [
        _view(trial, attempt, of_metric.get(trial.run_id or "", []), attempt is not None and attempt.fence in awaited)
        for trial, attempt in rows
    ]


def _series_of_metric(session: Session, run_ids: Sequence[str], metric: str) -> dict[str, list[Series]]:
    """The metric's series of all attempts by run, the newest attempt last; printed ones where none is logged."""
    tag = metric.removeprefix("printed/").rpartition("/")[2]
    query = (
        select(Attempt.run_id, Series)
        .join(Attempt, Attempt.fence == Series.fence)
        .where(Attempt.run_id.in_(run_ids), Series.tag.endswith(tag, autoescape=True))
        .order_by(Series.source == "events", Attempt.number)
    )
    names = (metric, f"printed/{metric}")
    series_by_run: dict[str, list[Series]] = {}
    for run_id, row in session.execute(query):
        if public_name(row) in names:
            series_by_run.setdefault(run_id, []).append(row)
    return {run_id: [row for row in rows if row.source == rows[-1].source] for run_id, rows in series_by_run.items()}


def _view(row: StudyTrial, attempt: Attempt | None, series: Sequence[Series], awaits_points: bool) -> Trial:
    """The trial, which counts as not ended until its last points have arrived: its result is among them."""
    last = series[-1] if series else None
    lows = [one.lowest for one in series if one.lowest is not None]
    highs = [one.highest for one in series if one.highest is not None]
    return Trial(
        row.number, row.run_id, State.STOPPING if awaits_points else State(attempt.state) if attempt else None,
        row.params,
        run_message=(attempt.message or attempt.end_message) if attempt else None,
        is_stopping=attempt is not None and attempt.ending_since is not None,
        rung=row.rung, rung_values=tuple(row.rung_values or ()), pruned_at=row.pruned_at,
        last_step=last.last_step if last else None,
        last_value=last.last_value if last else None,
        logged_s=last.last_wall - last.first_wall if last else 0.0,
        lowest=min(lows, default=None), highest=max(highs, default=None),
        state=row.state, value=row.value, device_hours=row.device_hours, message=row.message,
    )  # fmt: skip
