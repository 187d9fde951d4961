"""Read checkpoints as pages and the API show them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from db.checkpoints.inferred_steps import LoggedPoints, infer_step
from db.engine import Store
from db.metrics import points
from db.metrics.series_names import VALIDATION_LOSS, main_loss
from db.models import Attempt, Checkpoint, Run, Series
from domain.checkpoints.contents import CheckpointContents
from domain.checkpoints.names import is_part
from domain.messages import SCRIPT_KINDS
from domain.recovery import SavedFile, UnclearCheckpoint, choose_checkpoint
from domain.spec import RunSpec
from domain.views import CheckpointView


def checkpoints(store: Store, run_id: str) -> list[CheckpointView]:
    """A run's checkpoints, newest first, including those still being uploaded, without deleted ones."""
    with store.read() as session:
        return listed(session, run_id)


def listed(session: Session, run_id: str) -> list[CheckpointView]:
    """List a run's checkpoints as `checkpoints` does, in a session."""
    rows = _rows(session, run_id, Checkpoint.deleted_at.is_(None))
    world_size = RunSpec.model_validate(session.get_one(Run, run_id).spec).world_size if rows else 1
    names = {view.id: view.name for view in rows}
    rows = [replace(view, merged_from_name=names.get(view.merged_from or 0)) for view in rows]
    latest = _latest([view for view in rows if view.complete and view.merged_from is None], world_size)
    views = [replace(view, latest=view is latest) for view in rows]
    return _with_best(_measured(session, run_id, views))


def deleted_checkpoints(store: Store, run_id: str) -> list[CheckpointView]:
    """A run's deleted checkpoints that can be restored, newest first."""
    with store.read() as session:
        rows = _rows(session, run_id, Checkpoint.deleted_at.is_not(None), Checkpoint.complete.is_(True))
        return _measured(session, run_id, rows)


def with_steps(session: Session, run_id: str) -> tuple[list[CheckpointView], list[CheckpointView]]:
    """A run's complete checkpoints, and the deleted ones, also those whose bytes are gone; without losses or marks.

    Merged ones, which a person asked for, are not among them."""
    is_saved = Checkpoint.merged_from.is_(None)
    rows = _rows(session, run_id, is_saved, or_(Checkpoint.complete, Checkpoint.deleted_at.is_not(None)))
    views = list(_with_steps(session, _losses(session, run_id), rows))
    present = [view for view in views if view.deleted_at is None]
    return present, [view for view in views if view.deleted_at is not None]


def _rows(session: Session, run_id: str, *conditions: ColumnElement[bool]) -> list[CheckpointView]:
    query = (
        select(Checkpoint, Attempt.number)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .where(Attempt.run_id == run_id, *conditions)
        .order_by(Checkpoint.fence.desc(), Checkpoint.written_at.desc(), Checkpoint.id.desc())
    )
    return [_checkpoint_view(row, number) for row, number in session.execute(query)]


def checkpoint_file(store: Store, checkpoint_id: int) -> tuple[Checkpoint, str] | None:
    """A checkpoint's row and its run's id."""
    with store.read() as session:
        checkpoint = session.get(Checkpoint, checkpoint_id)
        if checkpoint is None:
            return None
        return checkpoint, session.get_one(Attempt, checkpoint.fence).run_id


def _checkpoint_view(row: Checkpoint, attempt: int) -> CheckpointView:
    return CheckpointView(
        id=row.id,
        name=row.path,
        attempt=attempt,
        step=row.step,
        size_bytes=row.size_bytes,
        received_bytes=row.received_bytes,
        sha256=row.sha256,
        complete=row.complete,
        created_at=row.written_at,
        loss=None,
        loss_name=None,
        latest=False,
        best=False,
        is_part=row.merged_from is None and is_part(row.path),
        prefix=row.prefix,
        trouble=row.trouble,
        is_asked_for_again=row.resend_requested_at is not None,
        merged_from=row.merged_from,
        pinned_by=row.pinned_by,
        pinned_at=row.pinned_at,
        deleted_at=row.deleted_at,
        deleted_by=row.deleted_by,
        deleted_why=row.deleted_why,
        holds=contents.kinds if (contents := CheckpointContents.of_stored(row.holds)) else None,
    )


def _measured(session: Session, run_id: str, views: list[CheckpointView]) -> list[CheckpointView]:
    """Return the checkpoints with their losses, and with inferred steps where their names have none."""
    losses, measured = _losses(session, run_id), []
    for view in _with_steps(session, losses, views):
        name, loss = _loss_at(session, losses.get(view.attempt, []), view.step)
        measured.append(replace(view, loss=loss, loss_name=name))
    return measured


def _with_steps(
    session: Session, losses: Mapping[int, list[LossSeries]], views: Sequence[CheckpointView]
) -> Iterator[CheckpointView]:
    """Yield the checkpoints, with inferred steps where their names have none."""
    logged = dict[int, list[LoggedPoints]]()
    for view in views:
        if view.step is None and not view.is_part:
            if view.attempt not in logged:
                of_attempt = losses.get(view.attempt, [])
                logged[view.attempt] = [LoggedPoints(session, one.id, one.points) for one in of_attempt]
            step = infer_step(view.name, view.created_at, logged[view.attempt])
            view = replace(view, step=step, step_is_inferred=step is not None)
        yield view


class LossSeries(NamedTuple):
    """A loss that an attempt logged or printed."""

    tag: str
    id: int
    points: int


def _losses(session: Session, run_id: str) -> dict[int, list[LossSeries]]:
    """The losses of each attempt, by its number, in the order in which one is looked for."""
    query = (
        select(Attempt.number, Series.source, Series.tag, Series.id, Series.count)
        .join(Attempt, points.series_of(Attempt.fence))
        .where(Attempt.run_id == run_id, Series.source.in_(SCRIPT_KINDS), Series.node_rank == 0)
        .where(Series.tag.icontains("loss"))
        .order_by(Series.id.desc())
    )
    by_source: dict[tuple[int, str], dict[str, list[LossSeries]]] = {}
    for attempt, source, tag, series_id, points_count in session.execute(query):
        by_tag = by_source.setdefault((attempt, source), {})
        by_tag.setdefault(tag, []).append(LossSeries(tag, series_id, points_count))
    losses: dict[int, list[LossSeries]] = {}
    for (attempt, _), by_tag in sorted(by_source.items(), key=lambda item: SCRIPT_KINDS.index(item[0][1])):
        tags = (*VALIDATION_LOSS, main_loss(by_tag))
        losses.setdefault(attempt, []).extend(one for tag in tags if tag in by_tag for one in by_tag[tag])
    return losses


def _loss_at(session: Session, losses: list[LossSeries], step: int | None) -> tuple[str | None, float | None]:
    """The first loss that was logged at a step, the validation loss before the training loss, and its name."""
    if step is None:
        return None, None
    for loss in losses:
        if (value := points.value_at(session, loss.id, step)) is not None:
            return loss.tag, value
    return None, None


def _latest(complete: list[CheckpointView], world_size: int) -> CheckpointView | None:
    """Return the checkpoint that a resume begins with; None where a person has to name it."""
    newest_first = sorted(complete, key=lambda view: (view.attempt, view.step or -1, view.created_at), reverse=True)
    files = {SavedFile(view.name, view.step, view.created_at, attempt=view.attempt): view for view in newest_first}
    with suppress(UnclearCheckpoint):
        chosen = choose_checkpoint([*files], world_size)
        return files[chosen] if chosen else None
    return None


def _with_best(views: list[CheckpointView]) -> list[CheckpointView]:
    """Mark the best by validation loss; a training loss covers one batch and says too little."""
    whole = [view for view in views if view.complete and not view.is_part and view.merged_from is None]
    measured = [view for view in whole if view.loss is not None and math.isfinite(view.loss)]
    validated = [view for view in measured if view.loss_name in VALIDATION_LOSS]
    best = min(validated, key=lambda view: view.loss or 0.0, default=None)
    return [replace(view, best=view is best) for view in views]
