"""Runs that others started: what was watched, and the processes that watch it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base


class WatchedRun(Base):
    """What somebody else started, as its first process described it."""

    __tablename__ = "watched_runs"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str | None] = mapped_column(Text, index=True)
    """What its processes share; None: it has one process only."""
    is_lasting: Mapped[bool]
    """Whether a process of this key that comes after the end is the next attempt, not a new run."""
    command: Mapped[list[Any]]
    """The command, as it was typed behind `--`; empty for a notebook or script that watches itself."""
    cwd: Mapped[str] = mapped_column(Text)
    host: Mapped[str] = mapped_column(Text)
    account: Mapped[str] = mapped_column(Text)
    """The operating system's account under which it runs."""
    scheduler: Mapped[str | None] = mapped_column(Text)
    """What started it, for people: Slurm job 4711; None: a terminal."""
    look_only: Mapped[bool]
    """Whether it must not be stopped from here."""


class WatchedTask(Base):
    """A process that watches, as a task of an attempt."""

    __tablename__ = "watched_tasks"

    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), primary_key=True)
    node_rank: Mapped[int] = mapped_column(primary_key=True)
    watch_id: Mapped[str] = mapped_column(String(10), unique=True)
    """Chosen by the watching process: one that asks again is the same."""
    host: Mapped[str] = mapped_column(Text)
    pid: Mapped[int]
    began_at: Mapped[float]
    """By its own clock."""
    ranks: Mapped[int | None]
    """Ranks that it starts: as its command says, then as many as its probe saw."""
    world_size: Mapped[int | None]
    """The world that its ranks know: as its environment says, then as its probe saw."""
    seen_at: Mapped[float | None]
    """When its probe last saw more of them; None: not yet."""
    ended_at: Mapped[float | None]
    """When its command ended, by its own clock."""
