"""When runs are expected to end, from the steps they have made and those they said they will make."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from db.metrics.curves import MAIN_LOSS, TOTAL_STEPS_TAG, main_loss
from db.models import Attempt, Checkpoint, Run, Series
from domain.messages import LIVE_STATES, State
from domain.scheduling.throughput import Pace, pace, said_total


def expected_ends(session: Session, now: float) -> dict[int, float]:
    """Of live attempts, by fence; those that are missing do not say when they end."""
    grace, most_steps = Run.spec["stop_grace_s"].as_float(), Run.spec["max_steps"].as_integer()
    query = (
        select(Attempt.fence, Attempt.state, Attempt.stop_requested_at, grace, most_steps)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state.in_(LIVE_STATES))
    )
    live = session.execute(query).all()
    told_to_stop = {fence: asked + (grace_s or 0.0) for fence, _, asked, grace_s, _ in live if asked}
    running = {fence: steps for fence, state, _, _, steps in live if state == State.RUNNING}
    paces = _paces(session, running)
    return {fence: now + found.left_s(found.last_step) for fence, found in paces.items()} | told_to_stop


def expected_durations(session: Session, fences: Collection[int]) -> dict[int, float]:
    """Of attempts that go on where the one before left off, by fence."""
    before = aliased(Attempt)
    query = (
        select(Attempt.fence, before.fence, Run.spec["max_steps"].as_integer(), Checkpoint.step)
        .join(before, (before.run_id == Attempt.run_id) & (before.number == Attempt.number - 1))
        .join(Run, Run.id == Attempt.run_id)
        .outerjoin(Checkpoint, Checkpoint.id == Attempt.resume_checkpoint_id)
        .where(Attempt.fence.in_(fences))
    )
    found = session.execute(query).all()
    paces = _paces(session, {earlier: steps for _, earlier, steps, _ in found})
    return {fence: paces[earlier].left_s(step or 0) for fence, earlier, _, step in found if earlier in paces}


def _paces(session: Session, most_steps: Mapping[int, int | None]) -> dict[int, Pace]:
    """Of attempts by fence, as far as their series or their specs (`most_steps`) say how many steps there are."""
    if not most_steps:
        return {}
    query = select(
        Series.fence, Series.tag, Series.first_step, Series.last_step, Series.first_wall, Series.last_wall,
        Series.last_value,
    ).where(
        Series.fence.in_(most_steps), Series.node_rank == 0, Series.source.in_(("events", "printed")),
        Series.tag.in_((*MAIN_LOSS, TOTAL_STEPS_TAG)),
    )  # fmt: skip
    by_fence: dict[int, dict[str, Any]] = {}
    for row in session.execute(query.order_by(Series.source.desc())):
        by_fence.setdefault(row.fence, {})[row.tag] = row  # what is logged comes after what is printed
    return {
        fence: found
        for fence, rows in by_fence.items()
        if (found := pace(_loss(rows), _total(rows, most_steps[fence]))) is not None
    }


def _loss(rows: Mapping[str, Any]) -> Any:
    return rows.get(main_loss(rows.keys()) or "")


def _total(rows: Mapping[str, Any], most_steps: int | None) -> int | None:
    said = rows.get(TOTAL_STEPS_TAG)
    return (said_total(said.last_value) if said is not None else None) or most_steps
