"""The files that the store names: logs and event files, checkpoints, code; and what a missing one means for its row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from db.engine import Store
from db.lookups import add_history
from db.models import Attempt, Checkpoint, File, Node, Run, Series, Snapshot, StoreIdentity, Task
from domain.messages import State


class FileKind(StrEnum):
    """A kind of file of the server."""

    MIRRORED = "file"
    """A log, an event file or a trace."""
    CHECKPOINT = "checkpoint"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True)
class StoredFile:
    """A file that the store names."""

    kind: FileKind
    key: str
    """The id of its row, which is its name on disk."""
    size_bytes: int
    """Bytes of content that count; a log may have more, which are not in the store yet, or be compressed."""
    sha256: str | None = None
    location: str | None = None
    """Its object, if it is in a bucket."""


def stored_files(store: Store) -> Iterator[StoredFile]:
    """Yield every file that is not empty and of which all arrived."""
    files = select(File.id, File.size_bytes).where(File.size_bytes > 0)
    columns = (Checkpoint.id, Checkpoint.size_bytes, Checkpoint.sha256, Checkpoint.location)
    with store.read() as session:
        for file_id, size_bytes in session.execute(files):
            yield StoredFile(FileKind.MIRRORED, str(file_id), size_bytes)
        for row in session.execute(select(*columns).where(Checkpoint.complete)):
            yield StoredFile(FileKind.CHECKPOINT, str(row.id), row.size_bytes, row.sha256, row.location)
        for sha256, size_bytes in session.execute(select(Snapshot.sha256, Snapshot.size_bytes)):
            yield StoredFile(FileKind.SNAPSHOT, sha256, size_bytes, sha256)


def known_keys(store: Store) -> dict[FileKind, set[str]]:
    """Return the names on disk of all rows that may have a file, also of those that are still arriving."""
    with store.read() as session:
        return {
            FileKind.MIRRORED: {str(one) for one in session.scalars(select(File.id))},
            FileKind.CHECKPOINT: {str(one) for one in session.scalars(select(Checkpoint.id))},
            FileKind.SNAPSHOT: {*session.scalars(select(Snapshot.sha256))},
        }


def lineage(store: Store) -> list[str]:
    """Return the store's identities, the oldest first: those of the stores that it was copied from, then its own."""
    with store.read() as session:
        return [*session.scalars(select(StoreIdentity.identity).order_by(StoreIdentity.id))]


def counts(store: Store) -> dict[str, int]:
    """Count the rows by which people recognize their store."""
    counted = {
        "runs": select(func.count()).select_from(Run).where(Run.deleted_at.is_(None)),
        "points": select(func.coalesce(func.sum(Series.count), 0)),
        "files": select(func.count()).select_from(File),
        "checkpoints": select(func.count()).select_from(Checkpoint).where(Checkpoint.complete),
    }
    with store.read() as session:
        return {name: int(session.scalar(query) or 0) for name, query in counted.items()}


MISSING = "Its file is missing on the server."


def mark_missing(store: Store, checkpoint_ids: list[int], shorter: Mapping[int, int], now: float) -> None:
    """List checkpoints without their file no longer, and ask their nodes for them; nodes resend the ends of logs.

    `shorter`: the bytes that are left of each log or event file, by its id."""
    with store.write() as session:
        for checkpoint_id in checkpoint_ids:
            if (checkpoint := session.get(Checkpoint, checkpoint_id)) is not None and checkpoint.complete:
                _take_back(session, checkpoint, now)
        for file_id, size_bytes in shorter.items():
            if (file := session.get(File, file_id)) is not None:
                left_bytes = 0 if file.compressed_bytes else size_bytes  # a part of a compressed file is worth nothing
                file.size_bytes, file.compressed_bytes = left_bytes, None


def _take_back(session: Session, checkpoint: Checkpoint, now: float) -> None:
    attempt = session.get_one(Attempt, checkpoint.fence)
    checkpoint.complete, checkpoint.received_bytes, checkpoint.trouble = False, 0, MISSING
    if checkpoint.deleted_at is not None:  # it cannot be restored any more, and nobody wants it sent
        return
    if State(attempt.state).is_terminal and _has_node(session, checkpoint):
        checkpoint.resend_requested_at = now
    text = f"checkpoint {checkpoint.path} is not listed any more: its file is missing on the server"
    add_history(session, attempt.run_id, attempt.number, now, text)


def _has_node(session: Session, checkpoint: Checkpoint) -> bool:
    """Whether the node that wrote a checkpoint still belongs to the cluster."""
    of_task = select(Node.id).join(Task, Task.node_id == Node.id).where(Node.removed_at.is_(None))
    of_task = of_task.where(Task.fence == checkpoint.fence, Task.node_rank == checkpoint.node_rank)
    return session.scalars(of_task).first() is not None
