"""The tables of preflights: what people and queued runs asked for, and what nodes answered."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.base import Base


class Check(Base):
    """A preflight that somebody asked for, or that a run needs for the bandwidth between its nodes."""

    __tablename__ = "checks"

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int | None] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), unique=True)
    """The attempt that waits for it."""
    python: Mapped[str | None] = mapped_column(Text)
    bandwidth: Mapped[bool]
    asked_at: Mapped[float]
    """Desired state; the columns below are observed state."""
    stage: Mapped[int]
    """0: nodes check themselves; 1: they reach each other; each further stage measures disjoint pairs."""
    stage_at: Mapped[float]
    rounds: Mapped[list[Any]]
    """The pairs of each further stage: [[[node rank, node rank], …], …]."""
    measured: Mapped[list[Any]]
    """[node rank, node rank, bytes per second or null, problem or null]."""
    ended_at: Mapped[float | None] = mapped_column(index=True)


class CheckPart(Base):
    """One node's share of a preflight."""

    __tablename__ = "check_parts"

    check_id: Mapped[int] = mapped_column(ForeignKey("checks.id", ondelete="CASCADE"), primary_key=True)
    node_rank: Mapped[int] = mapped_column(primary_key=True)
    node_id: Mapped[str] = mapped_column(String(10), index=True)
    node: Mapped[str] = mapped_column(Text)
    """The node's name at the time."""
    devices: Mapped[list[Any]]
    facts: Mapped[dict[str, Any] | None]
    answered_stage: Mapped[int]
    """The last stage it has answered; -1: none."""
    silent_s: Mapped[float | None]
    """Seconds since its last heartbeat when the preflight stopped waiting for it."""


class PairPass(Base):
    """A pair of nodes with a successful all-reduce, and their configuration at the time."""

    __tablename__ = "pair_passes"

    node_a: Mapped[str] = mapped_column(String(10), primary_key=True)
    node_b: Mapped[str] = mapped_column(String(10), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    """A digest of both nodes' addresses and versions: when it changes, the pair is measured again."""
    bytes_per_s: Mapped[float]
    at: Mapped[float]
