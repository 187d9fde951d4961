"""Estimate when runs end, from the steps they have made and the total they announce."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased

from db.metrics.series_names import MAIN_LOSS, TOTAL_STEPS_TAG, main_loss
from db.models import Attempt, Checkpoint, Run, Series
from domain.messages import LIVE_STATES, SCRIPT_KINDS, State
from domain.scheduling.throughput import Pace, logged_total, pace


def expected_ends(session: Session, now: float) -> dict[int, float]:
    """Expected ends of live attempts, by fence; attempts with an unknown end are missing."""
    grace, steps = Run.spec["stop_grace_s"].as_float(), Run.spec["max_steps"].as_integer()
    query = (
        select(Attempt.fence, Attempt.state, Attempt.stop_requested_at, grace, steps)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state.in_(LIVE_STATES))
    )
    live = session.execute(query).all()
    stopping = {fence: requested_at + (grace_s or 0.0) for fence, _, requested_at, grace_s, _ in live if requested_at}
    most_steps = {fence: steps for fence, state, _, _, steps in live if state == State.RUNNING}
    paces = _paces(session, most_steps, select(Attempt.fence).where(Attempt.state == State.RUNNING))
    return {fence: now + pace.left_s(pace.last_step) for fence, pace in paces.items()} | stopping


def expected_durations(session: Session, fences: Collection[int]) -> dict[int, float]:
    """Expected durations in seconds of attempts that resume a previous one, by fence; unknown ones are missing."""
    previous = aliased(Attempt)
    query = (
        select(Attempt.fence, previous.fence, Run.spec["max_steps"].as_integer(), Checkpoint.step)
        .join(previous, (previous.run_id == Attempt.run_id) & (previous.number == Attempt.number - 1))
        .join(Run, Run.id == Attempt.run_id)
        .outerjoin(Checkpoint, Checkpoint.id == Attempt.resume_checkpoint_id)
        .where(Attempt.fence.in_(fences))
    )
    rows = session.execute(query).all()
    most_steps = {earlier: steps for _, earlier, steps, _ in rows}
    paces = _paces(session, most_steps, [*most_steps])
    return {fence: paces[earlier].left_s(step or 0) for fence, earlier, _, step in rows if earlier in paces}


def _paces(
    session: Session, most_steps: Mapping[int, int | None], fences: Collection[int] | Select[int]
) -> dict[int, Pace]:
    """The pace of attempts by fence, where their series or specs (`most_steps`) give the total number of steps.

    `fences` are those of `most_steps`: a query costs less than a list of thousands."""
    if not most_steps:
        return {}
    query = select(
        Series.fence, Series.tag, Series.first_step, Series.last_step, Series.first_wall, Series.last_wall,
        Series.last_value, Series.source,
    ).where(
        Series.fence.in_(fences), Series.node_rank == 0, Series.source.in_(SCRIPT_KINDS),
        Series.tag.in_((*MAIN_LOSS, TOTAL_STEPS_TAG)),
    )  # fmt: skip
    by_fence: dict[int, dict[str, Any]] = {}
    for row in sorted(session.execute(query), key=lambda row: SCRIPT_KINDS.index(row.source)):
        by_fence.setdefault(row.fence, {}).setdefault(row.tag, row)
    return {
        fence: estimate
        for fence, rows in by_fence.items()
        if (estimate := pace(_loss(rows), _total(rows, most_steps[fence]))) is not None
    }


def _loss(rows: Mapping[str, Any]) -> Any:
    return rows.get(main_loss(rows.keys()) or "")


def _total(rows: Mapping[str, Any], most_steps: int | None) -> int | None:
    series = rows.get(TOTAL_STEPS_TAG)
    return (logged_total(series.last_value) if series is not None else None) or most_steps
