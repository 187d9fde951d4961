"""Read the figures of a scaling study's run: windows of steps, phases, processors."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from statistics import fmean

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.exceptions import NoSuchRun
from db.lookups import attempt_spec, latest_attempt
from db.metrics import points
from db.metrics.performance import HARDWARE_SOURCE, phase_totals
from db.metrics.series_names import VALIDATION_LOSS, main_loss
from db.models import Attempt, Node, Series, Task
from domain.messages import SCRIPT_KINDS, TERMINAL_STATES, Point, State
from domain.performance.phases import BESIDES, PHASES, PhaseTotals
from domain.performance.slow_ranks import slow_ranks
from domain.scaling import measurement
from domain.scaling.measurement import WARMUP_STEPS, RunFigures, is_measured
from domain.studies import Trial

MOST_CACHED = 500


class Figures:
    """The figures of runs that have ended, read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_run: OrderedDict[str, RunFigures | None] = OrderedDict()

    def of(self, trial: Trial, steps: int) -> RunFigures | None:
        """Return the figures of a trial whose run has ended; None where it made too few steps or failed."""
        run_id = trial.run_id
        if run_id is None or trial.run_state not in TERMINAL_STATES or trial.run_state == State.FAILED:
            return None
        if run_id not in self._by_run:
            try:
                self._by_run[run_id] = run_figures(self._store, run_id, steps)
            except NoSuchRun:  # deleted meanwhile
                return None
            if len(self._by_run) > MOST_CACHED:
                self._by_run.popitem(last=False)
        return self._by_run[run_id]


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
