"""Attempts, and what nodes report of each: tasks, jobs, findings, profiles."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base
from db.models.people import NAME


class Attempt(Base):
    """One execution of a run on a set of nodes; its primary key is the fencing token."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("run_id", "number"), {"sqlite_autoincrement": True})

    fence: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    number: Mapped[int]
    uid: Mapped[str | None] = mapped_column(String(16), default=lambda: secrets.token_hex(8))
    """Random, and so unique even across restored stores, which reuse fencing tokens."""
    created_at: Mapped[float]
    by: Mapped[str | None] = mapped_column(NAME)
    """Who launched or resumed it; None: the program."""
    via: Mapped[str | None] = mapped_column(Text)
    """What opened it for them: a token, sweep, alert, or the run's policy."""
    only_project: Mapped[str | None] = mapped_column(Text)
    """The one project of the token through which it was opened, also by a sweep, study or policy; None: of none."""
    stop_requested_at: Mapped[float | None]
    stop_requested_by: Mapped[str | None] = mapped_column(NAME)
    stacks_requested_at: Mapped[float | None]
    end_requested_at: Mapped[float | None]
    """When the run's policy decided to end it; every node is then assigned `stop`."""
    end_reason: Mapped[str | None] = mapped_column(String(32))
    end_message: Mapped[str | None] = mapped_column(Text)
    resize_requested_at: Mapped[float | None]
    """When its end was decided at a checkpoint, so that the next attempt continues on other nodes."""
    resize_message: Mapped[str | None] = mapped_column(Text)
    """at checkpoint last.pt to continue on 3 nodes: gpu-3 is free"""
    delivery_end_requested_at: Mapped[float | None]
    """When a person ended the sending of what the ended attempt had left on its nodes."""
    rollback: Mapped[dict[str, Any] | None]
    """The last good point, before which the next attempt begins (`domain.recovery`)."""
    turn_since: Mapped[float | None]
    """Queue time inherited from the previous attempt (automatic restarts)."""
    not_before: Mapped[float | None]
    """The earliest start: a pause before a restart, which would otherwise fail again at once."""
    restarts: Mapped[int] = mapped_column(default=0)
    """Number of automatic restarts before it since a person launched or resumed the run.

    Desired state; the columns below are observed state."""
    resume_checkpoint_id: Mapped[int | None]
    awaits_checkpoints_of: Mapped[int | None]
    """The fence of the attempt whose last checkpoints are on their way: one of them may be the start of this one."""
    changes: Mapped[dict[str, Any] | None]
    """Fields of the run's spec that differ for this attempt: nodes, accumulate, lr, after a rollback also args."""
    state: Mapped[str] = mapped_column(String(16), index=True)
    waiting_for: Mapped[str | None] = mapped_column(Text)
    expected_start_at: Mapped[float | None]
    reason: Mapped[str | None] = mapped_column(String(32))
    message: Mapped[str | None] = mapped_column(Text)
    next_step: Mapped[str | None] = mapped_column(Text)
    error: Mapped[dict[str, Any] | None]
    placed_at: Mapped[float | None]
    started_at: Mapped[float | None]
    ended_at: Mapped[float | None] = mapped_column(index=True)
    master_addr: Mapped[str | None] = mapped_column(Text)
    master_port: Mapped[int | None]
    preflighted_at: Mapped[float | None]
    """When all its nodes passed the preflight; from then on ranks may start."""

    @property
    def ending_since(self) -> float | None:
        """When a person or the run's policy first asked for its end."""
        requests = (self.stop_requested_at, self.end_requested_at, self.resize_requested_at)
        return next((at for at in requests if at is not None), None)


class Task(Base):
    """One node's task of an attempt."""

    __tablename__ = "tasks"

    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), primary_key=True)
    node_rank: Mapped[int] = mapped_column(primary_key=True)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), index=True)
    device_kind: Mapped[str] = mapped_column(String(8))
    devices: Mapped[list[Any]]
    state: Mapped[str] = mapped_column(String(16), index=True)
    pid: Mapped[int | None]
    argv: Mapped[list[Any] | None]
    env: Mapped[dict[str, Any] | None]
    cwd: Mapped[str | None] = mapped_column(Text)
    exit_code: Mapped[int | None]
    reason: Mapped[str | None] = mapped_column(String(32))
    message: Mapped[str | None] = mapped_column(Text)
    next_step: Mapped[str | None] = mapped_column(Text)
    error: Mapped[dict[str, Any] | None]
    interpreter: Mapped[dict[str, Any] | None]
    """The Python that trains there: its path, and the versions of python, torch, CUDA and NCCL.

    Under `environment` that of the run's lock: its kind, hash, Python and state."""
    preflight: Mapped[dict[str, Any] | None]
    """The node's preflight facts."""
    stacks: Mapped[dict[str, Any] | None]
    """The latest stack traces of its ranks."""
    collectives: Mapped[dict[str, Any] | None]
    """The latest collectives of its ranks."""
    timeline: Mapped[list[Any] | None]
    """The phases of its start that have ended, as its node reported them."""
    reported_at: Mapped[float | None]
    lost_at: Mapped[float | None]
    """When it was ended because its node was lost; None again once the node reports that no process is left."""
    delivery: Mapped[dict[str, Any] | None]
    """The data that its node has still to send after the end (`domain.messages.Delivery`); None: none, or not ended."""


class Job(Base):
    """The Slurm job of an attempt, as its gateway reports it."""

    __tablename__ = "jobs"

    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), primary_key=True)
    gateway_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), index=True)
    said: Mapped[dict[str, Any] | None]
    """The last report; None before the first."""
    ended_at: Mapped[float | None]


class FindingRow(Base):
    """Something wrong with an attempt, as reported by one of its nodes."""

    __tablename__ = "findings"
    __table_args__ = (UniqueConstraint("fence", "node_rank", "kind"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"))
    node_rank: Mapped[int]
    kind: Mapped[str] = mapped_column(Text)
    evidence: Mapped[str] = mapped_column(Text)
    meaning: Mapped[str] = mapped_column(Text)
    fix: Mapped[str] = mapped_column(Text)
    first_at: Mapped[float]
    gone_at: Mapped[float | None]
    """When it was resolved; None while it persists."""


class ProfiledRank(Base):
    """One rank of a profile: the request, and its outcome."""

    __tablename__ = "profiled_ranks"

    profile_id: Mapped[str] = mapped_column(String(10), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), index=True)
    node_rank: Mapped[int]
    requested_at: Mapped[float]
    first_step: Mapped[int] = mapped_column(BigInteger)
    steps: Mapped[int]
    until: Mapped[float]
    """When a rank that has not begun gives up.

    Desired state; the columns below are observed state."""
    state: Mapped[str | None] = mapped_column(String(16))
    """None before the rank's answer."""
    why: Mapped[str | None] = mapped_column(Text)
    file: Mapped[str | None] = mapped_column(Text)
    size_bytes: Mapped[int | None] = mapped_column(BigInteger)
    step_s_before: Mapped[float | None]
    overview: Mapped[dict[str, Any] | None]
    flame: Mapped[list[Any] | None] = mapped_column(deferred=True)
