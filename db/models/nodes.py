"""Nodes, the tokens they join with, and the preflights they answer."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base
from db.models.people import NAME


class Node(Base):
    """A machine with a worker, as it described itself."""

    __tablename__ = "nodes"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    instance_id: Mapped[str] = mapped_column(Text)
    token_hash: Mapped[str] = mapped_column(String(64), index=True)
    drain_requested_at: Mapped[float | None]
    drain_requested_by: Mapped[str | None] = mapped_column(NAME)
    unknown_ends: Mapped[list[Any] | None]
    """uids (or RUN/ATTEMPT) of its unknown attempts that somebody wants ended.

    Desired state; the columns below are observed state."""
    unknown_attempts: Mapped[list[Any] | None]
    """Attempts on it that this store does not know, running or not yet reported as ended."""
    protocol: Mapped[int | None]
    """The protocol version of its worker; None: the first version, which did not name one."""
    hostname: Mapped[str] = mapped_column(Text)
    address: Mapped[str] = mapped_column(Text)
    devices: Mapped[list[Any]]
    labels: Mapped[dict[str, Any]]
    info: Mapped[dict[str, Any]]
    load: Mapped[dict[str, Any] | None]
    pool: Mapped[str] = mapped_column(String(32), default="", server_default="")
    """Empty: a node of ours; `slurm`: a gateway; `slurm:FENCE`: a node of that attempt's Slurm job."""
    foreign_devices: Mapped[list[Any] | None]
    """Ids of devices used by processes that are not ours."""
    first_seen: Mapped[float]
    last_seen: Mapped[float]
    removed_at: Mapped[float | None]
    """Set for a removed node, whose row stays for the history of its runs."""


class JoinToken(Base):
    """A token with which workers register for a time; its secret is shown once and not stored."""

    __tablename__ = "join_tokens"

    id: Mapped[str] = mapped_column(String(8), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    secret_hash: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[float]
    expires_at: Mapped[float]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    uses: Mapped[int]
    most_uses: Mapped[int | None]
    """The use with which it ends; None: only its time ends it."""
    by: Mapped[str | None] = mapped_column(NAME)
    """Who made it."""


class Check(Base):
    """A preflight on request, or one that a run needs for the bandwidth between its nodes."""

    __tablename__ = "checks"

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int | None] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), unique=True)
    """The attempt that waits for it."""
    python: Mapped[str | None] = mapped_column(Text)
    bandwidth: Mapped[bool]
    by: Mapped[str | None] = mapped_column(NAME)
    """Who asked for it."""
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


class CheckedNode(Base):
    """One node's share of a preflight."""

    __tablename__ = "checked_nodes"

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
