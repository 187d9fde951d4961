"""The table of runs that were imported."""

from __future__ import annotations

from sqlalchemy import BigInteger, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.base import Base


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
