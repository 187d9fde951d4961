"""Request, read and end scaling studies, and read the figures of their runs."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from db import acting
from db.attempts import deliveries
from db.engine import Store
from db.exceptions import NoSuchRun
from db.lookups import attempt_spec, latest_attempt
from db.metrics import points
from db.metrics.performance import HARDWARE_SOURCE, phase_totals
from db.metrics.series_names import VALIDATION_LOSS, main_loss
from db.models import Attempt, Node, Run, ScalingRun, ScalingStudy, Series, Task, new_id
from db.people import audit
from db.people.ownership import ObjectKind, project_column, project_of
from db.people.permission import no_such, permit
from db.people.visibility import hidden_among, is_visible, sees_everything
from domain.choices import RUN_ID
from domain.messages import SCRIPT_KINDS, Point, State
from domain.people.audit import AuditAction
from domain.people.roles import Action
from domain.performance.phases import BESIDES, PHASES, PhaseTotals
from domain.performance.slow_ranks import slow_ranks
from domain.scaling import measurement
from domain.scaling.measurement import WARMUP_STEPS, RunFigures, is_measured
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
    hidden: frozenset[int]
    """Points with a run that was moved to a project that is hidden from the actor: nothing of them is shown."""
    by: str | None = None
    """Who requested it; None: the program."""
    only_project: str | None = None
    """The one project of the token with which it was requested."""

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
            by=acting.rights().by, only_project=acting.rights().only_project,
            id=new_id(), spec=spec.model_dump(mode="json"), mode=mode, steps=steps, points=[*points], created_at=now
        )  # fmt: skip
        session.add(study)
        audit.record(session, AuditAction.LAUNCHED, f"scaling study {study.id}", project_of(spec))
        return study.id


def request_stop(store: Store, study_id: str, now: float) -> None:
    """Ask a study to end, with the run that it waits for. A repeated request changes nothing.

    Raises NoSuchStudy, Denied."""
    with store.write() as session:
        row = _row(session, study_id, Action.STOP)
        if row.stop_requested_at is None and row.ended_at is None:
            row.stop_requested_at = now
            spec = RunSpec.model_validate(row.spec)
            audit.record(session, AuditAction.STOPPED, f"scaling study {row.id}", project_of(spec))


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
    query = _LIVE_STUDIES if is_live else _STUDIES
    if not sees_everything():
        query = query.where(is_visible(project_column(ScalingStudy.spec), ScalingStudy.by))
    with store.read() as session:
        rows = session.scalars(query, {"limit": limit})
        return [_view(session, row) for row in rows]


_STUDIES = select(ScalingStudy).order_by(ScalingStudy.created_at.desc(), ScalingStudy.id).limit(bindparam("limit"))
_LIVE_STUDIES = _STUDIES.where(ScalingStudy.ended_at.is_(None))
"""Built once: it runs every second."""


def latest_of(store: Store, target: str, entry: str | None, module: str | None) -> StudyView | None:
    """The newest study of the same program that has ended."""
    query = (
        select(ScalingStudy)
        .where(ScalingStudy.ended_at.is_not(None), ScalingStudy.spec["target"].as_string() == target)
        .where(is_visible(project_column(ScalingStudy.spec), ScalingStudy.by))
        .order_by(ScalingStudy.created_at.desc())
        .limit(20)
    )
    with store.read() as session:
        for row in session.scalars(query):
            same_entry = entry is None or row.spec.get("entry") == entry
            if same_entry and row.spec.get("module") == module:
                return _view(session, row)
    return None


def _row(session: Session, study_id: str, action: Action = Action.SEE) -> ScalingStudy:
    """The study to which the actor may do this. Raises NoSuchStudy, Denied."""
    permit(session, action, ObjectKind.STUDY, study_id)
    row = session.get(ScalingStudy, study_id) if RUN_ID.fullmatch(study_id) else None
    if row is None:
        raise no_such(ObjectKind.STUDY, study_id)
    return row


def _view(session: Session, row: ScalingStudy) -> StudyView:
    runs = _runs(session, row.id)
    hidden_runs = hidden_among(session, [run.run_id for run in runs])
    hidden = frozenset(run.point for run in runs if run.run_id in hidden_runs)
    return StudyView(
        row.id, RunSpec.model_validate(row.spec), row.mode, row.steps, list(row.points), row.created_at,
        row.stop_requested_at, row.ended_at, [run for run in runs if run.point not in hidden], hidden, row.by,
        row.only_project,
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
    awaited = deliveries.awaiting_points(session, [attempt.fence for _, attempt in rows])
    return [
        _run(run, attempt, steps.get(attempt.fence), awaits_points=attempt.fence in awaited) for run, attempt in rows
    ]


def _run(run: ScalingRun, attempt: Attempt, rate: Series | None, *, awaits_points: bool) -> RunOfStudy:
    """A run, which counts as not ended until its last points have arrived: it is measured by them."""
    return RunOfStudy(
        run.run_id,
        run.point,
        State.STOPPING if awaits_points else State(attempt.state),
        attempt.ending_since is not None,
        attempt.message,
        rate.last_step if rate else 0,
        rate.last_wall - rate.first_wall if rate else 0.0,
    )


# Read the figures of a study's run: windows of steps, phases, processors.

MOST_CACHED = 500


class Figures:
    """The figures of runs that have ended, read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_run: OrderedDict[str, RunFigures | None] = OrderedDict()

    def of(self, run: RunOfStudy, steps: int) -> RunFigures | None:
        """Return the figures of an ended run; None where it made too few steps or failed."""
        if not run.state.is_terminal or run.state == State.FAILED:
            return None
        if run.run_id not in self._by_run:
            try:
                self._by_run[run.run_id] = run_figures(self._store, run.run_id, steps)
            except NoSuchRun:  # deleted meanwhile
                return None
            if len(self._by_run) > MOST_CACHED:
                self._by_run.popitem(last=False)
        return self._by_run[run.run_id]


def run_figures(store: Store, run_id: str, steps: int) -> RunFigures | None:
    """The figures of an ended run of a study over `steps` steps; None where it made too few. Raises NoSuchRun."""
    totals, world_size = phase_totals(store, run_id, since_step=0)
    steps_of_ranks = _mean_steps(totals)
    with store.read() as session:
        attempt = latest_attempt(session, run_id)
        rates = _probed(session, attempt.fence, "steps_per_s")
        progress = (
            measurement.progress_of_phases(totals[0])
            if totals
            else measurement.progress_of_rates([(step, rate) for step, rate, _ in rates])
        )
        windows = measurement.windows(progress, steps)
        if not is_measured(windows, steps):
            return None
        since = next((wall for step, _, wall in rates if step >= WARMUP_STEPS), 0.0)
        return RunFigures(
            windows,
            _samples_per_step(session, attempt, rates),
            _mean_of(steps_of_ranks),
            _mean(session, attempt.fence, "cpu_percent", since),
            _mean(session, attempt.fence, "gpu%/utilisation_percent", since),
            _ranks_per_core(session, attempt),
            measurement.uneven_s(steps_of_ranks),
            next(iter(slow_ranks(totals, world_size)), None),
            _losses(session, attempt, WARMUP_STEPS + steps),
        )


def _losses(session: Session, attempt: Attempt, until: int) -> dict[str, float]:
    """The validation losses and the training loss that a run had reached at a step, by name."""
    query = select(Series).where(Series.fence == attempt.fence, Series.node_rank == 0, Series.source.in_(SCRIPT_KINDS))
    by_tag: dict[str, Series] = {}
    for series in session.scalars(query.order_by(Series.source)):  # events before printed
        by_tag.setdefault(series.tag, series)
    names = {*VALIDATION_LOSS, main_loss(by_tag) or ""} & by_tag.keys()
    since = math.ceil(measurement.LOSS_FROM * until)
    read = {name: points.read(session, by_tag[name].id, since, until) for name in names}
    losses = {name: measurement.mean_loss([value for _, value, _ in read[name]]) for name in sorted(names)}
    return {name: loss for name, loss in losses.items() if loss is not None}


def _samples_per_step(session: Session, attempt: Attempt, rates: Sequence[Point]) -> float | None:
    """Samples of a step over all ranks, as the probe saw them, else as the spec has them."""
    by_step = {step: rate for step, rate, _ in rates}
    per_step = [
        samples / by_step[step]
        for step, samples, _ in _probed(session, attempt.fence, "samples_per_s")
        if by_step.get(step)
    ]
    batch = attempt_spec(session, attempt).global_batch_size
    return sorted(per_step)[len(per_step) // 2] if per_step else batch


def _probed(session: Session, fence: int, tag: str) -> list[Point]:
    query = select(Series.id).where(Series.fence == fence, Series.source == "probe", Series.tag == tag)
    series = session.scalars(query).first()
    return [] if series is None else points.read(session, series)


def _mean_steps(ranks: Sequence[PhaseTotals]) -> list[dict[str, float]]:
    """Mean seconds of a step in each phase after the warm-up, by rank."""
    means = []
    for totals in ranks:
        first = next((step for step in totals.steps if step >= WARMUP_STEPS), totals.steps[-1])
        if first < totals.steps[-1]:
            means.append(totals.mean(first, totals.steps[-1]))
    return means


def _mean_of(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: fmean(step[name] for step in steps) for name in (*PHASES, *BESIDES)} if steps else {}


def _mean(session: Session, fence: int, tag: str, since: float) -> float | None:
    """The mean of hardware samples of all nodes after the warm-up."""
    query = select(Series.id).where(Series.fence == fence, Series.source == HARDWARE_SOURCE, Series.tag.like(tag))
    values = [
        value for series in session.scalars(query) for _, value, wall in points.read(session, series) if wall >= since
    ]
    return fmean(values) if values else None


def _ranks_per_core(session: Session, attempt: Attempt) -> float | None:
    query = select(Task, Node).join(Node, Node.id == Task.node_id).where(Task.fence == attempt.fence)
    shares = [
        len(task.devices) / cores
        for task, node in session.execute(query)
        if task.device_kind == "cpu" and (cores := node.info.get("cores"))
    ]
    return max(shares, default=None)
