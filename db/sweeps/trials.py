"""The trials of a sweep: the parameters and state of each, its metric so far, and its result once it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.attempts import deliveries
from db.engine import Store
from db.metrics.series_names import public_name
from db.models import Attempt, Series, SweepTrial
from db.runs.run_requests import reopen
from domain.messages import State

PRUNED = "pruned"
"""State of a trial that was not among the best at a rung, and of no run."""


@dataclass(frozen=True)
class TrialView:
    """A trial; `state` and what follows are its result, None before it is stored."""

    number: int
    run_id: str | None
    params: Mapping[str, Any]
    rung: int
    """Rungs that it has passed."""
    rung_values: tuple[float | None, ...]
    """The metric at each rung that it reached."""
    pruned_at: int | None
    run_state: State | None
    """None where it has no run."""
    run_message: str | None
    is_stopping: bool
    last_step: int | None
    """The last step at which the metric was logged."""
    last_value: float | None
    """The metric there, which may be NaN; None where it was not logged."""
    lowest: float | None
    """The lowest finite value of the metric so far, over all attempts."""
    highest: float | None
    state: str | None
    value: float | None
    device_hours: float | None
    message: str | None

    def best_value(self, goal: str) -> float | None:
        """The best value so far, as a comparison of runs has it; None without a finite one."""
        return self.highest if goal == "max" else self.lowest

    @property
    def is_settled(self) -> bool:
        """Whether its result is stored."""
        return self.state is not None


@dataclass(frozen=True)
class Result:
    """The result of an ended trial."""

    state: str
    value: float | None
    message: str | None
    device_hours: float | None


def add_unlaunched(store: Store, sweep_id: str, number: int, params: Mapping[str, Any], message: str) -> None:
    """Store a trial that could not be launched, with the reason."""
    with store.write() as session:
        trial = SweepTrial(sweep_id=sweep_id, number=number, params=dict(params), rung=0)
        trial.state, trial.message = State.FAILED.value, message
        session.add(trial)


def settle(store: Store, sweep_id: str, number: int, result: Result) -> None:
    """Store the result of a trial."""
    with store.write() as session:
        row = session.get_one(SweepTrial, (sweep_id, number))
        row.state, row.value, row.message = result.state, result.value, result.message
        row.device_hours = result.device_hours
        if result.state != PRUNED:
            row.pruned_at = None
        if result.state == State.SUCCEEDED:
            row.rung = len(row.rung_values or ())


def record_rungs(store: Store, sweep_id: str, number: int, values: Sequence[float | None]) -> None:
    """Store the metric of a trial at all rungs that it has reached."""
    with store.write() as session:
        session.get_one(SweepTrial, (sweep_id, number)).rung_values = list(values)


def pass_rung(store: Store, sweep_id: str, number: int) -> None:
    """Note that a trial goes on after its next rung."""
    with store.write() as session:
        session.get_one(SweepTrial, (sweep_id, number)).rung += 1


def prune(store: Store, sweep_id: str, number: int, step: int, message: str) -> None:
    """Note that a trial is not worth going on, and why; its run is stopped by the caller."""
    with store.write() as session:
        row = session.get_one(SweepTrial, (sweep_id, number))
        row.pruned_at, row.message = step, message


def promote(store: Store, sweep_id: str, number: int, now: float) -> None:
    """Let the run of a pruned trial go on from its last checkpoint: it passes the rung after all.

    Raises NoSuchRun, Denied, WrongState, InvalidRequest."""
    with store.write() as session:
        row = session.get_one(SweepTrial, (sweep_id, number))
        row.rung += 1
        reopen(session, row.run_id or "", now, why=f"promoted at rung {row.rung} of its sweep")
        row.state = row.value = row.message = row.device_hours = row.pruned_at = None


def trials_of(session: Session, sweep_id: str, metric: str) -> list[TrialView]:
    """Return the trials of a sweep by number, with the latest attempt of each one's run."""
    newest = select(func.max(Attempt.fence)).group_by(Attempt.run_id)
    query = (
        select(SweepTrial, Attempt)
        .outerjoin(Attempt, (Attempt.run_id == SweepTrial.run_id) & Attempt.fence.in_(newest))
        .where(SweepTrial.sweep_id == sweep_id)
        .order_by(SweepTrial.number)
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


def _view(row: SweepTrial, attempt: Attempt | None, series: Sequence[Series], awaits_points: bool) -> TrialView:
    """The trial, which counts as not ended until its last points have arrived: its result is among them."""
    last = series[-1] if series else None
    lows = [one.lowest for one in series if one.lowest is not None]
    highs = [one.highest for one in series if one.highest is not None]
    return TrialView(
        row.number, row.run_id, row.params, row.rung, tuple(row.rung_values or ()), row.pruned_at,
        State.STOPPING if awaits_points else State(attempt.state) if attempt else None,
        (attempt.message or attempt.end_message) if attempt else None,
        attempt is not None and attempt.ending_since is not None,
        last.last_step if last else None,
        last.last_value if last else None,
        min(lows, default=None), max(highs, default=None),
        row.state, row.value, row.device_hours, row.message,
    )  # fmt: skip
