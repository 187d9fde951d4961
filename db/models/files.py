"""What attempts wrote: files, points and checkpoints."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base, ExactFloat
from db.models.people import NAME


class File(Base):
    """A log or event file as far as it has been mirrored, keyed by generation."""

    __tablename__ = "files"
    __table_args__ = (UniqueConstraint("fence", "node_rank", "path", "generation"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"))
    node_rank: Mapped[int]
    path: Mapped[str] = mapped_column(Text)
    generation: Mapped[int]
    size_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    """Bytes that are durable on the server."""
    points_offset: Mapped[int] = mapped_column(BigInteger, default=0)
    """Bytes whose points are stored."""
    compressed_bytes: Mapped[int | None] = mapped_column(BigInteger)
    """Its size on disk once compressed, after the run's end; None: as it came; 0: it stays so, for too little gain."""


class Series(Base):
    """One named curve of one attempt and what a table needs of it without opening it."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("fence", "node_rank", "source", "tag"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), nullable=True)
    """NULL while its points are being imported (`db.archives.restore`): it belongs to no attempt yet; and in an earlier
    life."""
    past_fence: Mapped[int | None] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), index=True)
    """In an earlier life of the script the fence of its attempt: a later one continues the series under `fence`."""
    file_id: Mapped[int | None] = mapped_column(BigInteger)
    """The newest file that its points came from: a newer one that goes back begins a later life."""
    repeats: Mapped[int] = mapped_column(BigInteger, default=0)
    """Points at no higher step than one before them: all are kept, and drawn by time."""
    node_rank: Mapped[int]
    source: Mapped[str] = mapped_column(String(8))
    tag: Mapped[str] = mapped_column(Text)
    count: Mapped[int] = mapped_column(BigInteger)
    first_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    first_wall: Mapped[float]
    last_wall: Mapped[float]
    last_value: Mapped[float] = mapped_column(ExactFloat)
    last_number: Mapped[float | None]
    """`last_value` for comparisons in SQL; None when it is NaN."""
    lowest: Mapped[float | None]
    highest: Mapped[float | None]
    """Of the finite values; None without any."""
    finite_sum: Mapped[float]
    finite_count: Mapped[int] = mapped_column(BigInteger)
    not_finite_since: Mapped[int | None] = mapped_column(BigInteger)
    """First step of the equal values, all NaN or one infinity, that the series ends with."""


class Chunk(Base):
    """Up to 256 points of a series, packed; level 0 is every point, each level above about an eighth."""

    __tablename__ = "chunks"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"), primary_key=True)
    level: Mapped[int] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    count: Mapped[int]
    step_min: Mapped[int] = mapped_column(BigInteger)
    step_max: Mapped[int] = mapped_column(BigInteger)
    points: Mapped[bytes]


class Checkpoint(Base):
    """A checkpoint that rank 0 saved: being uploaded, or complete."""

    __tablename__ = "checkpoints"
    __table_args__ = (UniqueConstraint("fence", "node_rank", "path", "sha256"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"))
    node_rank: Mapped[int]
    path: Mapped[str] = mapped_column(Text)
    step: Mapped[int | None] = mapped_column(BigInteger)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(String(64))
    received_bytes: Mapped[int] = mapped_column(BigInteger)
    complete: Mapped[bool]
    written_at: Mapped[float]
    created_at: Mapped[float]
    prefix: Mapped[str | None] = mapped_column(Text)
    """A removable prefix of every parameter's name."""
    location: Mapped[str | None] = mapped_column(Text)
    """Its object, s3://BUCKET/KEY; None: a file in the directory of files."""
    upload_id: Mapped[str | None] = mapped_column(Text)
    """The id of its multipart upload to the bucket."""
    upload_began_at: Mapped[float | None]
    trouble: Mapped[str | None] = mapped_column(Text)
    """One sentence while it cannot be stored."""
    resend_requested_at: Mapped[float | None]
    """When a person asked its node to send it again after the attempt's end; None once the node has answered."""
    holds: Mapped[dict[str, Any] | None]
    """The kinds of state in it (a `domain.checkpoints.contents.Contents`), as its node read them; None: not read."""
    merged_from: Mapped[int | None]
    """The id of the checkpoint that it was merged from; not a foreign key: it may be deleted since."""
    pinned_at: Mapped[float | None]
    """When a person pinned it: no retention rule deletes it."""
    pinned_by: Mapped[str | None] = mapped_column(NAME)
    deleted_at: Mapped[float | None] = mapped_column(index=True)
    """When it was deleted: its bytes stay for some days, in which it can be restored."""
    deleted_by: Mapped[str | None] = mapped_column(NAME)
    """Who deleted it; None: the retention rule."""
    deleted_why: Mapped[str | None] = mapped_column(Text)
    """The rule that it was deleted by."""


class CheckpointTask(Base):
    """Work on a checkpoint that a person asked for and a node does: merge, push, show or diff."""

    __tablename__ = "checkpoint_tasks"

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(8))
    checkpoint_id: Mapped[int] = mapped_column(ForeignKey("checkpoints.id", ondelete="CASCADE"), index=True)
    other_id: Mapped[int | None]
    """The second checkpoint of a diff."""
    options: Mapped[dict[str, Any]]
    """format of a merge; target and secret's name of a push."""
    node_id: Mapped[str] = mapped_column(String(10), index=True)
    by: Mapped[str | None] = mapped_column(NAME)
    """Who asked for it."""
    via: Mapped[str | None] = mapped_column(Text)
    asked_at: Mapped[float]
    cancel_requested_at: Mapped[float | None]
    """Desired state; the columns below are observed state."""
    state: Mapped[str] = mapped_column(String(16), default="waiting")
    """waiting, running, then succeeded, failed or cancelled."""
    doing: Mapped[str | None] = mapped_column(Text)
    """The node's current work, as a part of a sentence."""
    done_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    total_bytes: Mapped[int | None] = mapped_column(BigInteger)
    message: Mapped[str | None] = mapped_column(Text)
    """Why it failed, in a sentence."""
    result: Mapped[dict[str, Any] | None]
    merged_id: Mapped[int | None]
    """The checkpoint that a merge made."""
    ended_at: Mapped[float | None]


class RetentionRule(Base):
    """The checkpoints that a project or a single run keeps; none: all."""

    __tablename__ = "retention_rules"
    __table_args__ = (UniqueConstraint("project"), UniqueConstraint("run_id"))

    id: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str | None] = mapped_column(Text)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    """Overrides its project's rule; None: the rule of a project."""
    rule: Mapped[str] = mapped_column(Text)
    """last 2, best 1 by val/loss, every 10000 steps (`domain.checkpoint_use.retention`)."""
    set_by: Mapped[str | None] = mapped_column(NAME)
    set_at: Mapped[float]


class Discarded(Base):
    """An object that must still be deleted from its bucket."""

    __tablename__ = "discarded"

    location: Mapped[str] = mapped_column(Text, primary_key=True)
    discarded_at: Mapped[float]
