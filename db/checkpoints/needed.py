"""What a run's checkpoints are needed for: neither a rule nor a person deletes those while that lasts."""

from __future__ import annotations

from sqlalchemy import Select, and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from db.attempts.new_attempt import find_checkpoint
from db.models import Attempt, Checkpoint, CheckpointTask, FindingRow, SharedLink
from domain.checkpoint_use.tasks import ENDED_STATES
from domain.messages import TERMINAL_STATES
from domain.recovery import UnclearCheckpoint
from domain.series import divergence

UNCLEAR = "it is unclear which files form one checkpoint"


def in_use(session: Session, run_id: str) -> dict[int, str]:
    """Return why nobody may delete a run's checkpoints now, by id: work under way reads them."""
    reasons: dict[int, str] = {}
    for checkpoint_id, kind in session.execute(_under_way(run_id)):
        reasons.setdefault(checkpoint_id, f"a task reads it: {kind}")
    for checkpoint_id, other in session.execute(_started_from(run_id).where(_IS_LIVE)):
        whose = "an attempt" if other == run_id else f"run {other}"
        reasons.setdefault(checkpoint_id, f"{whose} starts or has started from it")
    return reasons


def needed(session: Session, run_id: str) -> dict[int, str]:
    """Return why no rule may delete a run's checkpoints, by id: also what is pinned, or a restart would begin with."""
    reasons = in_use(session, run_id)
    for checkpoint_id, other in session.execute(_started_from(run_id).where(_IS_LATEST)):
        whose = "the latest attempt" if other == run_id else f"run {other}"
        reasons.setdefault(checkpoint_id, f"{whose} has started from it")
    for checkpoint in session.scalars(_complete(run_id)):
        if checkpoint.pinned_at is not None:
            reasons[checkpoint.id] = f"pinned{f' by {checkpoint.pinned_by}' if checkpoint.pinned_by else ''}"
        elif checkpoint.merged_from is not None:
            reasons.setdefault(checkpoint.id, "a person asked for it")
    return _with_origin(session, run_id, reasons)


def _with_origin(session: Session, run_id: str, reasons: dict[int, str]) -> dict[int, str]:
    """Add what a resume or the rollback of a diverging loss would begin with; where that is unclear, all."""
    try:
        if (origin := find_checkpoint(session, run_id, None)) is not None:
            reasons.setdefault(origin.id, "a resume begins with it")
    except UnclearCheckpoint:
        return {checkpoint.id: UNCLEAR for checkpoint in session.scalars(_complete(run_id))} | reasons
    for evidence in session.scalars(_diverging(run_id)):
        before = _complete(run_id).where(Checkpoint.merged_from.is_(None))
        before = before.where(Checkpoint.step < (divergence.since(evidence) or 0))
        newest = before.order_by(Checkpoint.step.desc(), Checkpoint.id.desc()).limit(1)
        if (good := session.scalars(newest).first()) is not None:
            reasons.setdefault(good.id, "the last one before its loss diverged")
    return reasons


def is_shared(session: Session, run_id: str, now: float) -> bool:
    """Whether a valid link shows the run."""
    valid = select(SharedLink.runs).where(SharedLink.revoked_at.is_(None), SharedLink.expires_at > now)
    return any(run_id in runs for runs in session.scalars(valid))


def _complete(run_id: str) -> Select[Checkpoint]:
    of_run = select(Checkpoint).join(Attempt, Attempt.fence == Checkpoint.fence).where(Attempt.run_id == run_id)
    return of_run.where(Checkpoint.complete, Checkpoint.deleted_at.is_(None))


def _under_way(run_id: str) -> Select[int, str]:
    reads = or_(CheckpointTask.checkpoint_id == Checkpoint.id, CheckpointTask.other_id == Checkpoint.id)
    return (
        select(Checkpoint.id, CheckpointTask.kind)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .join(CheckpointTask, reads)
        .where(Attempt.run_id == run_id, CheckpointTask.state.not_in(ENDED_STATES))
    )


_LATER = aliased(Attempt)
_USER = aliased(Attempt)
_IS_LIVE = _USER.state.not_in(TERMINAL_STATES)
_IS_LATEST = ~select(_LATER.fence).where(_LATER.run_id == _USER.run_id, _LATER.number > _USER.number).exists()


def _started_from(run_id: str) -> Select[int, str]:
    """The run's checkpoints that attempts, of whatever run, have started from, and the runs of those."""
    return (
        select(Checkpoint.id, _USER.run_id)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .join(_USER, _USER.resume_checkpoint_id == Checkpoint.id)
        .where(Attempt.run_id == run_id)
    )


def _diverging(run_id: str) -> Select[str]:
    latest = select(func.max(Attempt.number)).where(Attempt.run_id == run_id).scalar_subquery()
    of_run = and_(Attempt.fence == FindingRow.fence, Attempt.run_id == run_id, Attempt.number == latest)
    return (
        select(FindingRow.evidence)
        .join(Attempt, of_run)
        .where(FindingRow.kind == divergence.KIND, FindingRow.gone_at.is_(None))
    )
