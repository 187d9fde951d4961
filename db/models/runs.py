"""Runs as people launched, imported, described and shared them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base


class Run(Base):
    """A run as a person requested it; never changed by a worker."""

    __tablename__ = "runs"
    __table_args__ = (
        Index(
            "baseline_of_project",
            "project",
            unique=True,
            sqlite_where=text("baseline_at IS NOT NULL"),
            postgresql_where=text("baseline_at IS NOT NULL"),
        ),
        Index("listed_runs", "created_at", "id", "archived_at"),
        Index(
            "pinned_runs",
            "id",
            sqlite_where=text("pinned_at IS NOT NULL"),
            postgresql_where=text("pinned_at IS NOT NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    project: Mapped[str] = mapped_column(Text, index=True)
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    note: Mapped[str | None] = mapped_column(Text)
    archived_at: Mapped[float | None]
    pinned_at: Mapped[float | None]
    baseline_at: Mapped[float | None]
    """When it became the baseline of its project."""


class RunTag(Base):
    """One tag of a run."""

    __tablename__ = "run_tags"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    tag: Mapped[str] = mapped_column(Text, primary_key=True, index=True)


class SavedView(Base):
    """A named view of the list of runs."""

    __tablename__ = "saved_views"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    definition: Mapped[dict[str, Any]]
    """The fields of `domain.search.parser.ViewDefinition`."""
    saved_at: Mapped[float]


class SharedLink(Base):
    """A link that shows some runs to whoever has it, until a date."""

    __tablename__ = "shared_links"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(String(64))
    runs: Mapped[list[Any]]
    """Ids, in the order of the comparison; some may have been deleted since."""
    created_at: Mapped[float]
    expires_at: Mapped[float]
    revoked_at: Mapped[float | None]


class ImportedRun(Base):
    """Where a run was imported from, and how much of it is here."""

    __tablename__ = "imported_runs"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    format: Mapped[str] = mapped_column(String(32))
    """The importer that read it: tensorboard, wandb, mlflow, …"""
    source: Mapped[str] = mapped_column(Text)
    """The machine and path it was read from."""
    digest: Mapped[str] = mapped_column(String(64), index=True)
    """SHA-256 of all that was read."""
    points: Mapped[int] = mapped_column(BigInteger)
    """The number of points that are stored."""
    state: Mapped[str] = mapped_column(String(16))
    """The state of its attempt once all points are stored."""
    message: Mapped[str | None] = mapped_column(Text)
    ended_at: Mapped[float | None]
    completed_at: Mapped[float | None]
    """When its last point was stored; None: the import has not finished."""


class Snapshot(Base):
    """Code as it was when a run was launched: an archive among the server's files, named by its content."""

    __tablename__ = "snapshots"

    sha256: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Of the archive."""
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[int]
    origin: Mapped[dict[str, Any]]
    """kind (script, folder, git or upload), path or url, ref, commit, dirty, and what was left out."""
    created_at: Mapped[float]


class HistoryEntry(Base):
    """One line of a run's history, for people."""

    __tablename__ = "history"
    __table_args__ = (Index("history_of_run", "run_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    attempt: Mapped[int | None]
    at: Mapped[float]
    text: Mapped[str] = mapped_column(Text)
