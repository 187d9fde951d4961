"""Logs and event files of ended runs that the server compresses."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import aliased

from db.attempts.deliveries import are_sent
from db.engine import Store
from db.models import Attempt, File, Run
from db.tasks.task_reports import StreamKey

SMALLEST_BYTES = 64 * 1024
"""A file up to this size is not worth the work."""
_OTHER = aliased(Attempt)


class EndedFile(NamedTuple):
    """A file that gets no more bytes, unless a node comes back."""

    id: int
    stream: StreamKey
    size_bytes: int


def next_ended(store: Store, after_id: int, ended_before: float) -> EndedFile | None:
    """Return the first file behind an id of a run that ended before that time, which nothing was compressed of yet."""
    goes_on = select(_OTHER.fence).where(
        _OTHER.run_id == Attempt.run_id, or_(_OTHER.ended_at.is_(None), _OTHER.ended_at >= ended_before)
    )
    columns = (File.fence, File.node_rank, File.path, File.generation)
    query = (
        select(File.id, File.size_bytes, *columns)
        .join(Attempt, Attempt.fence == File.fence)
        .join(Run, Run.id == Attempt.run_id)
        .where(File.id > after_id, File.compressed_bytes.is_(None), File.size_bytes > SMALLEST_BYTES)
        .where(Run.deleted_at.is_(None), are_sent(), ~goes_on.exists())
        .order_by(File.id)
        .limit(1)
    )
    with store.read() as session:
        row = session.execute(query).first()
    return EndedFile(row.id, StreamKey(*row[2:]), row.size_bytes) if row else None


def is_unchanged(store: Store, file: EndedFile) -> bool:
    """Whether a file is still as it was, and not compressed."""
    with store.read() as session:
        return session.scalars(select(File.id).where(*_as_it_was(file))).first() is not None


def compressed(store: Store, file: EndedFile, compressed_bytes: int) -> bool:
    """Record a file's size on disk, 0 where it stays as it came; False if it has changed or its run was erased."""
    with store.write(f"file {file.id}") as session:
        changed = update(File).where(*_as_it_was(file)).values(compressed_bytes=compressed_bytes)
        return session.execute(changed.returning(File.id)).first() is not None


def _as_it_was(file: EndedFile) -> tuple[ColumnElement[bool], ...]:
    return (
        File.id == file.id,
        File.fence == file.stream.fence,
        File.size_bytes == file.size_bytes,
        File.compressed_bytes.is_(None),
    )
