"""Request, read and end scaling studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import NoSuchStudy
from db.models import Attempt, Run, ScalingRun, ScalingStudy, Series, new_id
from domain.choices import RUN_ID
from domain.messages import State
from domain.spec import RunSpec


@dataclass(frozen=True)
class RunOfStudy:
    """A run of a study: its state, and how far the probe has seen rank 0 step."""

    run_id: str
    point: int
    state: State
    is_stopping: bool
    message: str | None
    last_step: int
    stepped_s: float
    """Seconds between the probe's first and last record."""


@dataclass(frozen=True)
class StudyView:
    """A study as people requested it, and its runs in the order of their launch."""

    id: str
    spec: RunSpec
    """Includes secrets, which must not be shown."""
    mode: str
    steps: int
    """Steps of each run that are measured; with several global batches, of the largest one."""
    points: list[dict[str, Any]]
    created_at: float
    stop_requested_at: float | None
    ended_at: float | None
    runs: list[RunOfStudy]

    def runs_of(self, number: int) -> list[RunOfStudy]:
        """Return the runs of a point."""
        return [run for run in self.runs if run.point == number]

    def steps_of(self, point: dict[str, Any]) -> int:
        """Return the steps of a point's runs that are measured: more with a smaller global batch."""
        steps: int = point.get("steps", self.steps)
        return steps


def create(store: Store, spec: RunSpec, mode: str, steps: int, points: Sequence[dict[str, Any]], now: float) -> str:
    """Store a study whose runs are launched one after another; return its id."""
    with store.write() as session:
        study = ScalingStudy(
            id=new_id(), spec=spec.model_dump(mode="json"), mode=mode, steps=steps, points=[*points], created_at=now
        )  # fmt: skip
        session.add(study)
        return study.id


def request_stop(store: Store, study_id: str, now: float) -> None:
    """Ask a study to end, with the run that it waits for. A repeated request changes nothing. Raises NoSuchStudy."""
    with store.write() as session:
        row = _row(session, study_id)
        if row.stop_requested_at is None and row.ended_at is None:
            row.stop_requested_at = now


def end(store: Store, study_id: str, now: float) -> None:
    """Note that a study needs no further run. Raises NoSuchStudy."""
    with store.write() as session:
        _row(session, study_id).ended_at = now


def note_problem(store: Store, study_id: str, number: int, problem: str) -> None:
    """Note why a run of a point could not be launched. Raises NoSuchStudy."""
    with store.write() as session:
        row = _row(session, study_id)
        points = [dict(point) for point in row.points]
        points[number]["problem"] = problem
        row.points = points


def study(store: Store, study_id: str) -> StudyView:
    """One study; its id may be any text. Raises NoSuchStudy."""
    with store.read() as session:
        return _view(session, _row(session, study_id))


def studies(store: Store, limit: int = 100, *, is_live: bool = False) -> list[StudyView]:
    """Studies, newest first; `is_live`: only those in progress."""
    query = select(ScalingStudy).order_by(ScalingStudy.created_at.desc(), ScalingStudy.id).limit(limit)
    if is_live:
        query = query.where(ScalingStudy.ended_at.is_(None))
    with store.read() as session:
        return [_view(session, row) for row in session.scalars(query)]


def latest_of(store: Store, target: str, entry: str | None, module: str | None) -> StudyView | None:
    """The newest study of the same program that has ended."""
    query = (
        select(ScalingStudy)
        .where(ScalingStudy.ended_at.is_not(None), ScalingStudy.spec["target"].as_string() == target)
        .order_by(ScalingStudy.created_at.desc())
        .limit(20)
    )
    with store.read() as session:
        for row in session.scalars(query):
            same_entry = entry is None or row.spec.get("entry") == entry
            if same_entry and row.spec.get("module") == module:
                return _view(session, row)
    return None


def _row(session: Session, study_id: str) -> ScalingStudy:
    row = session.get(ScalingStudy, study_id) if RUN_ID.fullmatch(study_id) else None
    if row is None:
        raise NoSuchStudy(f"There is no scaling study {study_id[:20]!r}.")
    return row


def _view(session: Session, row: ScalingStudy) -> StudyView:
    return StudyView(
        row.id, RunSpec.model_validate(row.spec), row.mode, row.steps, list(row.points), row.created_at,
        row.stop_requested_at, row.ended_at, _runs(session, row.id),
    )  # fmt: skip


def _runs(session: Session, study_id: str) -> list[RunOfStudy]:
    newest = select(func.max(Attempt.fence)).group_by(Attempt.run_id)
    query = (
        select(ScalingRun, Attempt)
        .join(Run, Run.id == ScalingRun.run_id)
        .join(Attempt, Attempt.run_id == Run.id)
        .where(ScalingRun.study_id == study_id, Attempt.fence.in_(newest))
        .order_by(Attempt.fence)
    )
    rows = [(run, attempt) for run, attempt in session.execute(query)]
    rates = select(Series).where(
        Series.fence.in_([attempt.fence for _, attempt in rows]),
        Series.source == "probe",
        Series.tag == "steps_per_s",
    )
    steps = {series.fence: series for series in session.scalars(rates)}
    return [_run(run, attempt, steps.get(attempt.fence)) for run, attempt in rows]


def _run(run: ScalingRun, attempt: Attempt, rate: Series | None) -> RunOfStudy:
    return RunOfStudy(
        run.run_id,
        run.point,
        State(attempt.state),
        attempt.ending_since is not None,
        attempt.message,
        rate.last_step if rate else 0,
        rate.last_wall - rate.first_wall if rate else 0.0,
    )
