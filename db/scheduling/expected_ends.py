"""Estimate when runs end, from the steps or epochs they have made and the number that they announce or were given."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased

from db.metrics.series_names import EPOCH_TAGS, MAIN_LOSS, TOTAL_EPOCHS_TAG, TOTAL_STEPS_TAG, main_loss
from db.models import Attempt, Checkpoint, Run, Series
from domain.launch import plan
from domain.messages import LIVE_STATES, SCRIPT_KINDS, State
from domain.scheduling.epochs import Epochs, epochs_of
from domain.scheduling.throughput import Pace, logged_total, pace, total_ahead


def expected_ends(session: Session, now: float) -> dict[int, float]:
    """Expected ends of live attempts, by fence; attempts with an unknown end are missing."""
    grace = Run.spec["stop_grace_s"].as_float()
    query = (
        select(Attempt.fence, Attempt.state, Attempt.stop_requested_at, grace, *_LENGTH, Attempt.started_at)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state.in_(LIVE_STATES))
    )
    live = session.execute(query).all()
    stopping = {fence: requested_at + (grace_s or 0.0) for fence, _, requested_at, grace_s, *_ in live if requested_at}
    lengths = {fence: _Length(*length) for fence, state, _, _, *length in live if state == State.RUNNING}
    running = _read(session, lengths, select(Attempt.fence).where(Attempt.state == State.RUNNING))
    left = {fence: _left_s(attempt, now) for fence, attempt in running.items()}
    return {fence: now + left_s for fence, left_s in left.items() if left_s is not None} | stopping


def expected_durations(session: Session, fences: Collection[int]) -> dict[int, float]:
    """Expected durations in seconds of attempts that resume a previous one, by fence; unknown ones are missing."""
    previous = aliased(Attempt)
    query = (
        select(Attempt.fence, previous.fence, Checkpoint.step, *_LENGTH)
        .join(previous, (previous.run_id == Attempt.run_id) & (previous.number == Attempt.number - 1))
        .join(Run, Run.id == Attempt.run_id)
        .outerjoin(Checkpoint, Checkpoint.id == Attempt.resume_checkpoint_id)
        .where(Attempt.fence.in_(fences))
    )
    rows = session.execute(query).all()
    earlier = {previous_fence: _Length(*length) for _, previous_fence, _, *length in rows}
    read = _read(session, earlier, [*earlier])
    left = {
        fence: _left_from_s(read[previous_fence], step or 0)
        for fence, previous_fence, step, *_ in rows
        if previous_fence in read
    }
    return {fence: left_s for fence, left_s in left.items() if left_s is not None}


class _Length(NamedTuple):
    """What a run's spec says of its length."""

    max_steps: int | None
    epochs: int | None
    args: Sequence[str] | None
    started_at: float | None = None


_LENGTH = (Run.spec["max_steps"].as_integer(), Run.spec["epochs"].as_integer(), Run.spec["args"].as_json())


class _Place(NamedTuple):
    """Where an attempt is in its steps, if their number is known, and in its epochs."""

    pace: Pace | None
    epochs: Epochs | None


def _left_s(place: _Place, now: float) -> float | None:
    if place.pace is not None:
        return place.pace.left_s(place.pace.last_step)
    return place.epochs.left_s(now) if place.epochs else None


def _left_from_s(place: _Place, step: int) -> float | None:
    if place.pace is not None:
        return place.pace.left_s(step)
    return place.epochs.left_s(place.epochs.at) if place.epochs else None


def _read(session: Session, lengths: Mapping[int, _Length], fences: Collection[int] | Select[int]) -> dict[int, _Place]:
    """The places of attempts by fence. `fences` are those of `lengths`: a query costs less than a list of thousands."""
    if not lengths:
        return {}
    query = select(
        Series.fence, Series.tag, Series.first_step, Series.last_step, Series.first_wall, Series.last_wall,
        Series.last_value, Series.source, Series.finite_count, Series.lowest, Series.finite_sum,
    ).where(
        Series.fence.in_(fences), Series.node_rank == 0, Series.source.in_(SCRIPT_KINDS),
        Series.tag.in_((*MAIN_LOSS, *EPOCH_TAGS, TOTAL_STEPS_TAG, TOTAL_EPOCHS_TAG)),
    )  # fmt: skip
    by_fence: dict[int, dict[str, Any]] = {}
    for row in sorted(session.execute(query), key=lambda row: SCRIPT_KINDS.index(row.source)):
        by_fence.setdefault(row.fence, {}).setdefault(row.tag, row)
    return {fence: _place(rows, lengths[fence]) for fence, rows in by_fence.items()}


def _place(rows: Mapping[str, Any], length: _Length) -> _Place:
    loss = rows.get(main_loss(rows.keys()) or "")
    args = length.args or ()
    steps = (_told(rows, TOTAL_STEPS_TAG), length.max_steps, plan.total_steps(args))
    estimate = pace(loss, total_ahead(steps, loss.last_step)) if loss is not None else None
    if estimate is not None:
        return _Place(estimate, None)
    epochs = (_told(rows, TOTAL_EPOCHS_TAG), length.epochs, plan.total_epochs(args))
    curve = next((rows[tag] for tag in EPOCH_TAGS if tag in rows), None)
    return _Place(None, epochs_of(curve, loss.finite_count if loss is not None else 0, epochs, length.started_at))


def _told(rows: Mapping[str, Any], tag: str) -> int | None:
    return logged_total(rows[tag].last_value) if tag in rows else None
