"""Reports about checkpoints: offered, uploading, complete, and discarded, with objects to delete from the bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Select, delete, or_, select
from sqlalchemy.orm import Session

from db.attempts.deliveries import are_sent
from db.checkpoints import merged
from db.engine import Store
from db.exceptions import NotOwner
from db.lookups import add_history, attempt_scope, task_of_node
from db.models import Attempt, Checkpoint, CheckpointTask, Discarded, Node, Task
from domain.checkpoint_use.tasks import ENDED_STATES
from domain.messages import CheckpointFetch, CheckpointOffer
from domain.text.formats import size

Locate = Callable[[str], str | None]
"""The location for a new checkpoint of a run; None is the directory of files."""


def offered(
    store: Store,
    node_id: str,
    fence: int,
    node_rank: int,
    offer: CheckpointOffer,
    now: float,
    locate: Locate = lambda run_id: None,
) -> Checkpoint:
    """Register a checkpoint, or return the one already offered with this path and SHA-256.

    Raises NotOwner, Superseded."""
    with store.write(attempt_scope(fence)) as session:
        values = offer.model_dump(exclude={"task_id"})
        if offer.task_id is None:
            _, attempt = task_of_node(session, node_id, fence, node_rank)
        else:
            source, attempt = merged.merge_of(session, node_id, fence, node_rank, offer.task_id)
            values = merged.values_of(source, offer)
        same = select(Checkpoint).filter_by(fence=fence, node_rank=node_rank, path=offer.path, sha256=offer.sha256)
        checkpoint = session.scalars(same).first()
        if checkpoint is not None and offer.task_id is not None and checkpoint.deleted_at is not None:
            merged.take_again(checkpoint, locate(attempt.run_id))
        if checkpoint is None:
            checkpoint = Checkpoint(
                fence=fence,
                node_rank=node_rank,
                received_bytes=0,
                complete=False,
                created_at=now,
                location=locate(attempt.run_id),
                **values,
            )
            session.add(checkpoint)
            session.flush()
        return checkpoint


def of_node(store: Store, node_id: str, checkpoint_id: int) -> tuple[Checkpoint, str]:
    """A checkpoint on its way and its run's id. Raises NotYours unless this node offered it."""
    with store.read() as session:
        checkpoint = session.get(Checkpoint, checkpoint_id)
        if checkpoint is None:
            raise NotOwner(f"Checkpoint {checkpoint_id} was not offered by this node.")
        if merged.is_sent_by(session, node_id, checkpoint):
            return checkpoint, session.get_one(Attempt, checkpoint.fence).run_id
        _, attempt = task_of_node(session, node_id, checkpoint.fence, checkpoint.node_rank)
        return checkpoint, attempt.run_id


def received(store: Store, checkpoint_id: int, received_bytes: int) -> None:
    """Record how many bytes of a checkpoint are durable (0: it starts again). Raises NotOwner."""
    _change(store, checkpoint_id, received_bytes=received_bytes, trouble=None)


def upload_began(store: Store, checkpoint_id: int, upload_id: str, now: float) -> None:
    """Record the multipart upload to which the checkpoint's parts belong from now on. Raises NotOwner."""
    with store.write() as session:
        checkpoint = _arriving(session, checkpoint_id)
        checkpoint.upload_id, checkpoint.upload_began_at, checkpoint.received_bytes = upload_id, now, 0
        session.execute(delete(Discarded).where(Discarded.location == checkpoint.location))


def upload_lost(store: Store, checkpoint_id: int) -> None:
    """Reset the upload of a checkpoint that the bucket no longer has. Raises NotOwner."""
    _change(store, checkpoint_id, received_bytes=0, upload_id=None)


def troubled(store: Store, checkpoint_id: int, sentence: str, now: float) -> bool:
    """Record why a checkpoint cannot be stored now; True, with a history line, when that is new."""
    with store.write() as session:
        checkpoint = session.get(Checkpoint, checkpoint_id)
        if checkpoint is None or checkpoint.complete or checkpoint.trouble == sentence:
            return False
        checkpoint.trouble = sentence
        attempt = session.get_one(Attempt, checkpoint.fence)
        add_history(session, attempt.run_id, attempt.number, now, f"checkpoint {checkpoint.path} waits: {sentence}")
        return True


def resent(store: Store, checkpoint_id: int, problem: str | None, now: float) -> None:
    """Record that a node has answered the request to send a checkpoint again; `problem` is why it could not."""
    with store.write() as session:
        checkpoint = session.get(Checkpoint, checkpoint_id)
        if checkpoint is None or checkpoint.resend_requested_at is None:
            return
        checkpoint.resend_requested_at = None
        if problem is not None and not checkpoint.complete:
            checkpoint.trouble = problem
            attempt = session.get_one(Attempt, checkpoint.fence)
            text = f"checkpoint {checkpoint.path} could not be sent again: {problem}"
            add_history(session, attempt.run_id, attempt.number, now, text)


def completed(store: Store, checkpoint_id: int, now: float) -> list[int]:
    """Mark a checkpoint as complete once its SHA-256 agrees; from then on it is listed.

    Returns the ids of older versions of the file, which the script has overwritten and which are deleted here.
    Raises NotOwner."""
    with store.write() as session:
        checkpoint = _arriving(session, checkpoint_id)
        if checkpoint.complete:
            return []
        checkpoint.complete, checkpoint.received_bytes = True, checkpoint.size_bytes
        checkpoint.trouble = checkpoint.upload_id = checkpoint.resend_requested_at = None
        attempt = session.get_one(Attempt, checkpoint.fence)
        overwritten = _overwritten(session, checkpoint)
        if not any(older.complete for older in overwritten):
            add_history(session, attempt.run_id, attempt.number, now, f"checkpoint {checkpoint.path} stored")
        discard(session, overwritten, now)
        forgotten = [older.id for older in overwritten]
        session.execute(delete(Checkpoint).where(Checkpoint.id.in_(forgotten)))
        return forgotten


def _arriving(session: Session, checkpoint_id: int) -> Checkpoint:
    """A checkpoint that a node sends. Raises NotOwner where its run was erased."""
    checkpoint = session.get(Checkpoint, checkpoint_id)
    if checkpoint is None:
        raise NotOwner(f"Checkpoint {checkpoint_id} no longer exists: its run was deleted.")
    return checkpoint


def _change(store: Store, checkpoint_id: int, **values: object) -> None:
    with store.write(f"checkpoint {checkpoint_id}") as session:
        checkpoint = _arriving(session, checkpoint_id)
        if not checkpoint.complete:
            for name, value in values.items():
                setattr(checkpoint, name, value)


def _overwritten(session: Session, newer: Checkpoint) -> list[Checkpoint]:
    """Earlier versions of a checkpoint, except pinned and deleted ones, and those an attempt or a task needs.

    Incomplete ones count only in a bucket: in the directory of files they cost nothing."""
    in_use = select(Attempt.resume_checkpoint_id).where(Attempt.resume_checkpoint_id.is_not(None))
    same_file = select(Checkpoint).filter_by(fence=newer.fence, node_rank=newer.node_rank, path=newer.path)
    older = same_file.where(Checkpoint.id < newer.id, Checkpoint.id.not_in(in_use), Checkpoint.deleted_at.is_(None))
    older = older.where(Checkpoint.pinned_at.is_(None), Checkpoint.merged_from.is_not_distinct_from(newer.merged_from))
    reads = or_(CheckpointTask.checkpoint_id == Checkpoint.id, CheckpointTask.other_id == Checkpoint.id)
    tasks = select(CheckpointTask.id).where(reads, CheckpointTask.state.not_in(ENDED_STATES))
    older = older.where(~tasks.exists())
    return list(session.scalars(older.where(or_(Checkpoint.complete, Checkpoint.location.is_not(None)))))


def record_fetch_progress(session: Session, attempt: Attempt, part: Task, fetch: CheckpointFetch, now: float) -> None:
    """Store how far a node has fetched the checkpoint that its attempt starts from; once complete, in the history."""
    node = session.get_one(Node, part.node_id).name
    doing = f"{node} fetches the checkpoint {fetch.name}"
    if not fetch.is_verified:
        attempt.waiting_for = (
            f"{doing}: {size(fetch.done_bytes, is_coarse=True)} of {size(fetch.size_bytes, is_coarse=True)}"
        )
        return
    if (attempt.waiting_for or "").startswith(doing):
        attempt.waiting_for = None
    size_text = size(fetch.size_bytes, is_coarse=True)
    text = f"{node} has fetched the checkpoint {fetch.name} ({size_text}); its SHA-256 agrees"
    add_history(session, attempt.run_id, attempt.number, now, text)


# Objects to delete from the bucket, remembered until they are deleted.


def discard(session: Session, checkpoints: Sequence[Checkpoint], now: float) -> None:
    """Mark the checkpoints' objects for deletion, as part of the caller's transaction."""
    for checkpoint in checkpoints:
        if checkpoint.location is not None:
            session.merge(Discarded(location=checkpoint.location, discarded_at=now))


def discarded(store: Store, at_most: int) -> list[str]:
    """Locations of objects to delete, the oldest first."""
    oldest = select(Discarded.location).order_by(Discarded.discarded_at).limit(at_most)
    with store.read() as session:
        return list(session.scalars(oldest))


def deleted(store: Store, location: str) -> None:
    """Forget an object that was deleted from its bucket."""
    with store.write() as session:
        session.execute(delete(Discarded).where(Discarded.location == location))


def give_up_uploads(store: Store, before: float, now: float) -> None:
    """Discard incomplete checkpoints whose upload began, and whose attempt ended, before `before`."""
    with store.read() as session:
        if session.scalars(_abandoned(before).limit(1)).first() is None:
            return
    with store.write() as session:
        abandoned = list(session.scalars(_abandoned(before)))
        discard(session, abandoned, now)
        for checkpoint in abandoned:
            checkpoint.upload_id, checkpoint.received_bytes = None, 0


def _abandoned(before: float) -> Select[Checkpoint]:
    ended = select(Attempt.fence).where(Attempt.ended_at < before, are_sent())
    on_its_way = select(Checkpoint).where(Checkpoint.complete.is_(False), Checkpoint.upload_id.is_not(None))
    return on_its_way.where(Checkpoint.upload_began_at < before, Checkpoint.fence.in_(ended))
