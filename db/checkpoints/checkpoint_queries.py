"""Read checkpoints as pages and the API show them."""

from __future__ import annotations

import math
from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from db.engine import Store
from db.metrics import points
from db.metrics.series_names import VALIDATION_LOSS, main_loss
from db.models import Attempt, Checkpoint, Series
from domain.messages import SCRIPT_KINDS
from domain.recovery import SavedFile, rank_0s
from domain.views import CheckpointView


def checkpoints(store: Store, run_id: str) -> list[CheckpointView]:
    """A run's checkpoints, newest first, including those still being uploaded."""
    query = (
        select(Checkpoint, Attempt.number)
        .join(Attempt, Attempt.fence == Checkpoint.fence)
        .where(Attempt.run_id == run_id)
        .order_by(Checkpoint.fence.desc(), Checkpoint.written_at.desc(), Checkpoint.id.desc())
    )
    with store.read() as session:
        losses = _losses(session, run_id)
        views = []
        for row, number in session.execute(query):
            loss_name, loss = _loss_at(session, losses.get(row.fence, []), row.step)
            views.append(_checkpoint_view(row, number, loss_name, loss))
    return _marked(views)


def checkpoint_file(store: Store, checkpoint_id: int) -> tuple[Checkpoint, str] | None:
    """A checkpoint's row and its run's id."""
    with store.read() as session:
        checkpoint = session.get(Checkpoint, checkpoint_id)
        if checkpoint is None:
            return None
        return checkpoint, session.get_one(Attempt, checkpoint.fence).run_id


def _checkpoint_view(row: Checkpoint, attempt: int, loss_name: str | None, loss: float | None) -> CheckpointView:
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
        loss=loss,
        loss_name=loss_name,
        latest=False,
        best=False,
        prefix=row.prefix,
        trouble=row.trouble,
        is_asked_for_again=row.resend_requested_at is not None,
    )


def _losses(session: Session, run_id: str) -> dict[int, list[tuple[str, int]]]:
    """The losses of each attempt, by fence: name and id of the series, in the order in which one is looked for."""
    query = (
        select(Series.fence, Series.source, Series.tag, Series.id)
        .join(Attempt, Attempt.fence == Series.fence)
        .where(Attempt.run_id == run_id, Series.source.in_(SCRIPT_KINDS), Series.node_rank == 0)
        .where(Series.tag.icontains("loss"))
    )
    by_source: dict[tuple[int, str], dict[str, int]] = {}
    for fence, source, tag, series_id in session.execute(query):
        by_source.setdefault((fence, source), {})[tag] = series_id
    losses: dict[int, list[tuple[str, int]]] = {}
    for (fence, _), by_tag in sorted(by_source.items(), key=lambda item: SCRIPT_KINDS.index(item[0][1])):
        tags = (*VALIDATION_LOSS, main_loss(by_tag))
        losses.setdefault(fence, []).extend((tag, by_tag[tag]) for tag in tags if tag in by_tag)
    return losses


def _loss_at(session: Session, losses: list[tuple[str, int]], step: int | None) -> tuple[str | None, float | None]:
    """The first loss that was logged at a step, the validation loss before the training loss, and its name."""
    if step is None:
        return None, None
    for tag, series_id in losses:
        if (value := points.value_at(session, series_id, step)) is not None:
            return tag, value
    return None, None


def _of_rank_0(newest: CheckpointView, views: list[CheckpointView]) -> CheckpointView:
    """Return rank 0's checkpoint of the same moment, where each rank writes its own: a resume begins with it."""
    files = {SavedFile(view.name, view.step, view.created_at): view for view in views if view.attempt == newest.attempt}
    return files[rank_0s(SavedFile(newest.name, newest.step, newest.created_at), [*files])]


def _marked(views: list[CheckpointView]) -> list[CheckpointView]:
    """Mark the latest, and the best by validation loss; a training loss covers one batch and says too little."""
    complete = [view for view in views if view.complete]
    newest = max(complete, key=lambda v: (v.attempt, v.step or -1, v.created_at), default=None)
    latest = newest and _of_rank_0(newest, complete)
    measured = [view for view in complete if view.loss is not None and math.isfinite(view.loss)]
    validated = [view for view in measured if view.loss_name in VALIDATION_LOSS]
    best = min(validated, key=lambda view: view.loss or 0.0, default=None)
    return [replace(view, latest=view is latest, best=view is best) for view in views]
