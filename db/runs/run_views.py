"""Runs as lists and pages show them: the rows of a few queries for all of them, and of each what its series say."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Text, and_, bindparam, cast, func, or_, select
from sqlalchemy.orm import Session, aliased

from db.attempts import deliveries
from db.attempts.attempt_queries import doing_at_start
from db.attempts.liveness import PendingNode, end_grace_s, end_waits_for, pending_nodes, silent_nodes
from db.findings.findings import first_findings
from db.metrics.series_names import (
    EPOCH_TAGS,
    PROBED_TAGS,
    THROUGHPUT_TAGS,
    TOTAL_EPOCHS_TAG,
    TOTAL_STEPS_TAG,
    main_loss,
)
from db.models import Attempt, ImportedRun, Run, RunTag, Series
from db.people.visibility import visibility, visible_runs
from db.watched import watched_runs
from domain.launch import plan
from domain.liveness import is_silent
from domain.masking.masking import masked_spec
from domain.messages import LIVE_STATES, SCRIPT_KINDS, State
from domain.scheduling import resizing
from domain.scheduling.epochs import Epochs, epochs_of
from domain.scheduling.fit import without_names
from domain.scheduling.throughput import logged_total, pace, total_ahead
from domain.spec import RunSpec
from domain.views import DeliveryView, RunView, with_attention
from domain.watched_views import WatchedView


class RunRow(NamedTuple):
    """The row of a run."""

    id: str
    name: str
    project: str
    spec: str
    """As JSON text."""
    created_at: float
    note: str | None
    archived_at: float | None
    pinned_at: float | None
    baseline_at: float | None
    by: str | None
    via: str | None
    imported_from: str | None


class SeriesFigures(NamedTuple):
    """What a run's figures need of one of its series, without its points."""

    fence: int
    source: str
    tag: str
    first_step: int
    last_step: int
    first_wall: float
    last_wall: float
    last_value: float
    lowest: float | None
    finite_sum: float
    finite_count: int
    not_finite_since: int | None


# Built once, and without objects for the rows of runs and series: a window of a list reads a hundred of the one, and
# six hundred of the other.
_RUNS = (
    select(
        Attempt, Run.id, Run.name, Run.project, cast(Run.spec, Text), Run.created_at, Run.note, Run.archived_at,
        Run.pinned_at, Run.baseline_at, Run.by, Run.via, ImportedRun.format,
    )
    .join(Run, Run.id == Attempt.run_id)
    .outerjoin(ImportedRun, ImportedRun.run_id == Run.id)
    .where(Attempt.fence.in_(bindparam("fences", expanding=True)))
)  # fmt: skip
_SERIES = (
    select(*(getattr(Series, name) for name in SeriesFigures._fields))
    .where(
        Series.fence.in_(bindparam("fences", expanding=True)),
        or_(Series.source.in_(SCRIPT_KINDS), and_(Series.source == "probe", Series.tag.in_(PROBED_TAGS))),
        Series.node_rank == 0,
    )
    .order_by(Series.fence, Series.id)
)
_LATEST = aliased(Attempt)
_EARLIER = (
    select(Attempt.run_id, func.max(Attempt.fence))
    .join(_LATEST, (_LATEST.run_id == Attempt.run_id) & (Attempt.number < _LATEST.number))
    .where(_LATEST.fence.in_(bindparam("fences", expanding=True)))
    .where(
        select(Series.id).where(Series.fence == Attempt.fence, Series.source.in_(SCRIPT_KINDS)).exists(),
    )
    .group_by(Attempt.run_id)
)
_TAGS = (
    select(RunTag.run_id, RunTag.tag)
    .where(RunTag.run_id.in_(bindparam("run_ids", expanding=True)))
    .order_by(RunTag.tag)
)


def views(session: Session, fences: Sequence[int], now: float) -> list[RunView]:
    """The views of the runs with these latest attempts, in the same order."""
    if not fences:
        return []
    read = session.execute(_RUNS, {"fences": fences})
    rows: dict[int, tuple[Attempt, RunRow]] = {row[0].fence: (row[0], RunRow._make(row[1:])) for row in read}
    begun = [fence for fence, (attempt, _) in rows.items() if attempt.state != State.QUEUED]
    series, findings = _series(session, begun), first_findings(session, begun)
    silent = [fence for fence, (one, _) in rows.items() if one.resume_checkpoint_id and fence not in series]
    earlier = _earlier_series(session, silent)
    nodes = pending_nodes(session, begun, now)
    run_ids = [run.id for _, run in rows.values()]
    tags, sending = _tags(session, run_ids), deliveries.views(session, run_ids, now)
    watched = watched_runs.views(session, fences)
    named = _visible_names(session, [attempt for attempt, _ in rows.values()])
    return [
        with_attention(
            run_view(
                run,
                attempt,
                series.get(fence) or earlier.get(run.id, []),
                nodes.get(fence, []),
                findings.get(fence),
                now,
                tags.get(run.id, []),
                has_logged=fence in series,
                named=named,
                delivery=sending.get(run.id),
                watched=watched.get(run.id),
                doing=_doing(session, attempt, fence in series, now),
            ),
            now,
        )
        for fence, (attempt, run) in ((fence, rows[fence]) for fence in fences)
    ]


LONGEST_START_S = 900.0
"""Seconds after which a run without points counts as one that logs nothing, not as one that starts."""


def _doing(session: Session, attempt: Attempt, has_logged: bool, now: float) -> str | None:
    """Say what keeps an attempt that is new and has logged nothing from its first step."""
    is_new = attempt.started_at is None or now - attempt.started_at < LONGEST_START_S
    may_start = State(attempt.state) in (State.STARTING, State.RUNNING) and not has_logged and is_new
    return doing_at_start(session, attempt, now) if may_start else None


def _visible_names(session: Session, attempts: Iterable[Attempt]) -> set[str] | None:
    """The names of live runs that sentences about waiting ones may have for a guest of single projects; None: all."""
    if visibility().only is None or not any(one.state == State.QUEUED and one.waiting_for for one in attempts):
        return None
    is_live = Attempt.state.in_((State.QUEUED, *LIVE_STATES))
    query = select(Run.id, Run.name).join(Attempt, Attempt.run_id == Run.id).where(is_live, visible_runs())
    return {id_or_name for row in session.execute(query) for id_or_name in row}


def _earlier_series(session: Session, fences: Sequence[int]) -> dict[str, list[SeriesFigures]]:
    """The series of the last attempt that logged before these, by run: where a resumed run stands until it steps."""
    if not fences:
        return {}
    read = session.execute(_EARLIER, {"fences": fences}).all()
    run_ids = {fence: run_id for run_id, fence in read}
    return {run_ids[fence]: series for fence, series in _series(session, [*run_ids]).items()}


def _tags(session: Session, run_ids: Sequence[str]) -> dict[str, list[str]]:
    """The tags of each run that has some, in order, by its id."""
    tags: dict[str, list[str]] = {}
    for run_id, tag in session.connection().execute(_TAGS, {"run_ids": run_ids}):
        tags.setdefault(run_id, []).append(tag)
    return tags


def _series(session: Session, fences: Sequence[int]) -> dict[int, list[SeriesFigures]]:
    """Node rank 0's series of each attempt, by fence, the oldest first: logged ones, those parsed from the output,
    and the probe's speeds of the entire attempt."""
    rows_by_fence: dict[int, list[SeriesFigures]] = {}
    read = session.connection().execute(_SERIES, {"fences": fences}).all() if fences else ()
    for row in map(SeriesFigures._make, read):
        rows_by_fence.setdefault(row.fence, []).append(row)
    return rows_by_fence


LEARNING_RATE_TAGS = ("train/lr", "lr", "train/learning_rate", "learning_rate")


MOST_PARSED = 1024
"""Specs that stay in memory, some 10 KB each."""


def run_view(
    run: RunRow,
    attempt: Attempt,
    series: Sequence[SeriesFigures],
    nodes: Sequence[PendingNode],
    finding: str | None,
    now: float,
    tags: Sequence[str] = (),
    has_logged: bool = True,
    named: Collection[str] | None = None,
    delivery: DeliveryView | None = None,
    watched: WatchedView | None = None,
    doing: str | None = None,
) -> RunView:
    """A run and its latest attempt, with that attempt's series, or those of an earlier one until it `has_logged`.

    What the script says of itself comes before what the probe saw of it. `nodes`: those whose tasks have not ended."""
    launched, shown = _parsed(run.spec)
    spec = resizing.effective(launched, attempt.changes)
    state, silent_s = State(attempt.state), max((node.silent_s for node in nodes), default=None)
    return RunView(
        id=run.id,
        name=run.name,
        project=run.project,
        state=state,
        reason=attempt.reason,
        message=attempt.message or attempt.end_message,
        next_step=attempt.next_step,
        error=attempt.error,
        world_size=spec.world_size,
        nodes=spec.nodes,
        attempt=attempt.number,
        lost_contact=silent_s is not None and is_silent(silent_s),
        silent_s=silent_s,
        silent_nodes=[node.node for node in silent_nodes(nodes)],
        created_at=run.created_at,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        stop_requested_at=attempt.stop_requested_at,
        kill_at=_kill_at(attempt, launched) if nodes else None,
        waiting_for=_waiting_for(attempt, state, nodes, named) or doing,
        expected_start_at=attempt.expected_start_at,
        finding=finding,
        delivery=delivery,
        watched=watched,
        base_lr=launched.lr,
        lr=spec.scaled_lr,
        global_batch_size=spec.global_batch_size,
        spec=shown,
        tags=list(tags),
        note=run.note,
        archived=run.archived_at is not None,
        pinned=run.pinned_at is not None,
        imported_from=run.imported_from,
        by=run.by,
        via=run.via,
        baseline=run.baseline_at is not None,
        **(_figures if has_logged else _figures_before)(series, state, spec, attempt.started_at, now),
    )


@lru_cache(maxsize=MOST_PARSED)
def _parsed(spec: str) -> tuple[RunSpec, RunSpec]:
    """A stored spec, and the same with secrets masked; parsed once for each text, since most lists repeat."""
    launched = RunSpec.model_validate(json.loads(spec))
    return launched, masked_spec(launched)


def _figures(
    series: Sequence[SeriesFigures], state: State, spec: RunSpec, started_at: float | None, now: float
) -> dict[str, Any]:
    """The fields of `RunView` that come from series."""
    rows, probed = (
        [row for row in series if row.source != "probe"],
        [row for row in series if row.source == "probe"],
    )
    leading = [row for row in rows if row.source == "events"] or rows
    by_tag = {row.tag: row for row in leading}
    loss, speed = _loss(rows), _speed(by_tag, probed) or _speed_by_steps(probed, spec)
    epoch, rate = _logged_or_printed(rows, EPOCH_TAGS), _logged_or_printed(rows, LEARNING_RATE_TAGS)
    step = max((row.last_step for row in leading or probed), default=None)
    total_steps = _total_steps(rows, spec, step)
    epochs = epochs_of(epoch, loss.finite_count if loss else 0, _epoch_totals(rows, spec), started_at)
    curve = max([loss] if loss else leading or probed, key=_span, default=None)
    return {
        "step": step,
        "total_steps": total_steps,
        "epoch": epoch.last_value if epoch else None,
        "current_epoch": _current_epoch(state, epoch, epochs, has_loss=loss is not None),
        "total_epochs": epochs.total if epochs else (spec.epochs if epoch is None else None),
        "last_loss": loss.last_value if loss else None,
        "loss_not_finite_since": loss.not_finite_since if loss else None,
        "throughput": speed.last_value if speed else None,
        "throughput_mean": speed.finite_sum / speed.finite_count if speed and speed.finite_count else None,
        "progress": _progress(state, step, total_steps, epochs),
        "eta_s": _eta_s(state, curve, total_steps, epochs, now),
        "last_lr": rate.last_value if rate else None,
        "inferred": _printed({"epoch": epoch, "last_loss": loss, "throughput": speed, "last_lr": rate}),
    }


def _figures_before(
    series: Sequence[SeriesFigures], state: State, spec: RunSpec, _started_at: float | None, now: float
) -> dict[str, Any]:
    """Figures of an earlier attempt, from whose checkpoint this one continues: not its speed, nor a broken loss."""
    figures = _figures(series, state, spec, None, now)
    loss = figures["last_loss"]
    nothing = dict.fromkeys(("throughput", "throughput_mean", "eta_s", "loss_not_finite_since"))
    return figures | nothing | {"last_loss": loss if loss is not None and math.isfinite(loss) else None}


def _loss(rows: Sequence[SeriesFigures]) -> SeriesFigures | None:
    """The training loss that the script logs, else that it prints."""
    for source in SCRIPT_KINDS:
        by_tag = {row.tag: row for row in rows if row.source == source}
        if tag := main_loss(by_tag):
            return by_tag[tag]
    return None


def _span(row: SeriesFigures) -> int:
    return row.last_step - row.first_step


def _speed_by_steps(probed: Sequence[SeriesFigures], spec: RunSpec) -> SeriesFigures | None:
    """Samples per second where only steps were seen: by the batch of the form, else of the script's arguments."""
    of_one = plan.batch_size(spec.args)
    batch = spec.global_batch_size or (of_one * spec.world_size if of_one else None)
    steps = next((row for row in probed if row.tag == "steps_per_s"), None)
    if steps is None or not batch:
        return None
    return steps._replace(last_value=steps.last_value * batch, finite_sum=steps.finite_sum * batch)


def _speed(by_tag: Mapping[str, SeriesFigures], probed: Sequence[SeriesFigures]) -> SeriesFigures | None:
    """The throughput that the script logs, else the probe's."""
    speeds = {row.tag: row for row in probed} | dict(by_tag)
    return next((speeds[tag] for tag in THROUGHPUT_TAGS if tag in speeds), None)


def _logged_or_printed(rows: Sequence[SeriesFigures], tags: Sequence[str]) -> SeriesFigures | None:
    """The first of the tags that the script logs, else the first that it prints.

    Not used for steps, which may be counted differently in logged and printed series."""
    candidates = [row for row in rows if row.tag in tags]
    return min(candidates, key=lambda row: (row.source != "events", tags.index(row.tag)), default=None)


def _printed(figures: Mapping[str, SeriesFigures | None]) -> list[str]:
    """The names of those figures that were read from the script's output."""
    return [name for name, row in figures.items() if row is not None and row.source == "printed"]


def _waiting_for(
    attempt: Attempt, state: State, nodes: Sequence[PendingNode], named: Collection[str] | None
) -> str | None:
    if state not in LIVE_STATES or (attempt.ending_since is None and state != State.STOPPING):
        sentence = attempt.waiting_for
        return sentence if named is None or sentence is None else without_names(sentence, named)
    waits = end_waits_for(nodes)
    if attempt.resize_requested_at is None or attempt.stop_requested_at is not None:
        return waits
    return "; ".join(filter(None, [f"ends {attempt.resize_message}", waits]))


def _kill_at(attempt: Attempt, spec: RunSpec) -> float | None:
    asked_at = attempt.ending_since
    return None if asked_at is None else asked_at + end_grace_s(attempt, spec)


def _total_steps(rows: Sequence[SeriesFigures], spec: RunSpec, step: int | None) -> int | None:
    """The number of steps that is not passed: as logged, as in the form, as printed, as in the script's arguments."""
    events, printed = _told_totals(rows, TOTAL_STEPS_TAG)
    return total_ahead((events, spec.max_steps, printed, plan.total_steps(spec.args)), step or 0)


def _epoch_totals(rows: Sequence[SeriesFigures], spec: RunSpec) -> list[int | None]:
    """The numbers of epochs: as logged, as in the form, as printed, as in the script's arguments."""
    events, printed = _told_totals(rows, TOTAL_EPOCHS_TAG)
    return [events, spec.epochs, printed, plan.total_epochs(spec.args)]


def _told_totals(rows: Sequence[SeriesFigures], tag: str) -> tuple[int | None, int | None]:
    """A total that the script logs, and one that it prints."""
    totals = {row.source: logged_total(row.last_value) for row in rows if row.tag == tag}
    return totals.get("events"), totals.get("printed")


def _current_epoch(state: State, epoch: SeriesFigures | None, epochs: Epochs | None, has_loss: bool) -> float | None:
    """The epoch it is in; the last one once it has succeeded in it, also where 7.98 of 8 was logged last, or where
    headers alone tell the epochs, each when the next one begins."""
    if epochs is None:
        return epoch.last_value if epoch else None
    is_over = state == State.SUCCEEDED and epochs.current > epochs.total - (1 if has_loss else 2)
    return float(epochs.total) if is_over else epochs.current


def _progress(state: State, step: int | None, total_steps: int | None, epochs: Epochs | None) -> float | None:
    if state == State.SUCCEEDED:
        return 1.0
    if total_steps:
        return min(1.0, (step or 0) / total_steps)
    return epochs.share if epochs else None


def _eta_s(
    state: State, curve: SeriesFigures | None, total_steps: int | None, epochs: Epochs | None, now: float
) -> float | None:
    """Steps left at the attempt's mean step time so far, else the epochs left."""
    if state != State.RUNNING:
        return None
    if estimate := pace(curve, total_steps):
        return estimate.left_s(estimate.last_step)
    return epochs.left_s(now) if epochs and not total_steps else None
