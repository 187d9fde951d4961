"""Read the losses around the resumes of live attempts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.metrics import points
from db.metrics.curves import SeriesRow, loss_rows
from db.metrics.series_names import main_loss
from db.models import Attempt, Checkpoint, Run, Series
from domain.checkpoint_use.resumed_loss import BEFORE, FIRST, FIRST_SAMPLES, ResumedLoss
from domain.messages import Point


@dataclass(frozen=True)
class Resumption:
    """A live attempt that began from a checkpoint, and the attempt that wrote it."""

    run_id: str
    attempt: int
    fence: int
    origin_run: str
    origin_attempt: int
    origin_fence: int
    step: int | None
    written_at: float


def resumptions(store: Store, fences: Collection[int]) -> list[Resumption]:
    """The attempts among these that began from a checkpoint of the same run, or of one with the same program."""
    query = select(Attempt, Checkpoint).join(Checkpoint, Checkpoint.id == Attempt.resume_checkpoint_id)
    with store.read() as session:
        rows = session.execute(query.where(Attempt.fence.in_(fences))).all() if fences else []
        pairs = [(attempt, session.get_one(Attempt, saved.fence), saved) for attempt, saved in rows]
        return [_resumption(*pair) for pair in pairs if _is_same_program(session, pair[0], pair[1])]


def resumed_loss(store: Store, resumption: Resumption) -> ResumedLoss | None:
    """The main loss that both attempts have; None without one."""
    with store.read() as session:
        of = [(resumption.origin_run, resumption.origin_attempt), (resumption.run_id, resumption.attempt)]
        rows = loss_rows(session, {run_id for run_id, _ in of})
        before, after = ({row.name: row for row in rows if (row.run_id, row.attempt) == one} for one in of)
        name = main_loss(before.keys() & after.keys())
        return None if name is None else _around(session, resumption, before[name], after[name])


def _around(session: Session, resumption: Resumption, before: SeriesRow, after: SeriesRow) -> ResumedLoss:
    earlier, later = (_first_samples(session, fence) for fence in (resumption.origin_fence, resumption.fence))
    common = max(earlier.keys() & later.keys(), default=None)
    return ResumedLoss(
        name=after.name,
        before=_before(session, before.id, resumption),
        first=points.head(session, after.id, FIRST),
        last=points.tail(session, after.id, FIRST),
        count=after.count,
        has_same_data=None if common is None else earlier[common] == later[common],
    )


def _before(session: Session, series_id: int, resumption: Resumption) -> list[Point]:
    """The last points up to the checkpoint's step; of one without a step, up to its time."""
    if resumption.step is not None:
        return points.until(session, series_id, resumption.step, BEFORE)
    newest = points.tail(session, series_id, 10 * BEFORE)
    return [point for point in newest if point[2] <= resumption.written_at][-BEFORE:]


def _first_samples(session: Session, fence: int) -> Mapping[int, float]:
    """Number of samples -> the digest of the first ones that rank 0 read in the attempt."""
    query = select(Series.tag, Series.id).where(Series.fence == fence, Series.source == "probe", Series.node_rank == 0)
    rows = session.execute(query.where(Series.tag.startswith(FIRST_SAMPLES))).all()
    return {int(tag.removeprefix(FIRST_SAMPLES)): points.head(session, series_id, 1)[0][1] for tag, series_id in rows}


def _resumption(attempt: Attempt, origin: Attempt, saved: Checkpoint) -> Resumption:
    return Resumption(
        attempt.run_id, attempt.number, attempt.fence, origin.run_id, origin.number, origin.fence,
        saved.step, saved.written_at,
    )  # fmt: skip


def _is_same_program(session: Session, attempt: Attempt, origin: Attempt) -> bool:
    """Whether both train the same program on the same data: after a change of these a loss may well be another."""
    if attempt.run_id == origin.run_id:
        return True
    now, then = (session.get_one(Run, one.run_id).spec for one in (attempt, origin))
    return all(now.get(name) == then.get(name) for name in ("target", "entry", "module", "links", "stage"))
