"""Runs with their history, and the studies that group them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base
from db.models.people import NAME


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
        Index("listed_runs", "created_at", "id", "archived_at", "deleted_at", "project", "by"),
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
    by: Mapped[str | None] = mapped_column(NAME, index=True)
    """Who launched or imported it; None: the program."""
    via: Mapped[str | None] = mapped_column(Text)
    """What launched it for them: a token, sweep or alert."""
    deleted_at: Mapped[float | None]
    """When it was deleted: its files stay for a week, in which an admin can bring it back."""
    deleted_by: Mapped[str | None] = mapped_column(NAME)
    token_id: Mapped[str | None] = mapped_column(String(8), index=True)
    """The token with which it was launched; None: a person did it, or a token without a budget."""
    longest_s: Mapped[float | None]
    """Seconds that it may train in all, after which it ends at a checkpoint."""


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
    by: Mapped[str | None] = mapped_column(NAME)
    """Who made it."""


class SharedLink(Base):
    """A link that shows some runs to anyone who has it, until a date."""

    __tablename__ = "shared_links"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(String(64))
    runs: Mapped[list[Any]]
    """Ids, in the order of the comparison; some may have been deleted since."""
    created_at: Mapped[float]
    expires_at: Mapped[float]
    revoked_at: Mapped[float | None]
    by: Mapped[str | None] = mapped_column(NAME)
    """Who made it."""


class ImportedRun(Base):
    """Where a run was imported from, and how much of it is here."""

    __tablename__ = "imported_runs"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    format: Mapped[str] = mapped_column(String(32))
    """The importer that read it: tensorboard, wandb, mlflow, …"""
    source: Mapped[str] = mapped_column(Text)
    """The machine and path it was read from."""
    digest: Mapped[str] = mapped_column(String(64), index=True)
    """SHA-256 of everything read."""
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


class SnapshotSender(Base):
    """A person who has sent a snapshot's bytes: they may launch it although no run that they see has it yet."""

    __tablename__ = "snapshot_senders"

    sha256: Mapped[str] = mapped_column(ForeignKey("snapshots.sha256", ondelete="CASCADE"), primary_key=True)
    by: Mapped[str] = mapped_column(primary_key=True)


class HistoryEntry(Base):
    """One line of a run's history, for people."""

    __tablename__ = "history"
    __table_args__ = (Index("history_of_run", "run_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    attempt: Mapped[int | None]
    at: Mapped[float]
    text: Mapped[str] = mapped_column(Text)
    by: Mapped[str | None] = mapped_column(NAME)
    """Who did it; None: the program, by its own rules."""
    via: Mapped[str | None] = mapped_column(Text)
    """What acted for them: a token, sweep, alert or worker."""


# Runs that belong together: studies with their trials.


class Study(Base):
    """One spec that is trained many times: with different parameters, or on several numbers of devices."""

    __tablename__ = "studies"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    kind: Mapped[str] = mapped_column(String(8))
    """sweep or scaling."""
    spec: Mapped[dict[str, Any]]
    """The spec that all its trials share, with the snapshot of its code."""
    plan: Mapped[dict[str, Any]]
    """A `SweepPlan` or `ScalingPlan`."""
    by: Mapped[str | None] = mapped_column(NAME)
    """Who made it."""
    only_project: Mapped[str | None] = mapped_column(Text)
    """The one project of the token with which it was made, which bounds its runs, too; None: of none."""
    token_id: Mapped[str | None] = mapped_column(String(8))
    """The token with a budget with which it was made, and which pays for its trials."""
    created_at: Mapped[float] = mapped_column(index=True)
    stop_requested_at: Mapped[float | None]
    """Desired state; the columns below are observed state."""
    ended_at: Mapped[float | None] = mapped_column(index=True)
    message: Mapped[str | None] = mapped_column(Text)
    """Why it ended before its last trial."""


class StudyTrial(Base):
    """One trial: its run's parameters, and in a sweep its result once that has ended."""

    __tablename__ = "study_trials"

    study_id: Mapped[str] = mapped_column(ForeignKey("studies.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    """None where no run could be launched, or it was deleted."""
    params: Mapped[dict[str, Any]]
    """In a scaling study `point`: its place among the plan's points."""
    rung: Mapped[int] = mapped_column(default=0)
    """Rungs of successive halving that it has passed."""
    rung_values: Mapped[list[Any] | None]
    """The metric at each rung that it reached, null where that is not finite."""
    pruned_at: Mapped[int | None] = mapped_column(BigInteger)
    """The step at which it was found not worth going on; the columns below are its result."""
    state: Mapped[str | None] = mapped_column(String(16))
    """succeeded, failed, stopped or pruned; None before its end. In a scaling study only of one without a run."""
    value: Mapped[float | None]
    """None where the metric was not logged, or is not finite."""
    device_hours: Mapped[float | None]
    message: Mapped[str | None] = mapped_column(Text)
