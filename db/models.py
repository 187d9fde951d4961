"""The tables: runs and attempts as people wished them, parts, points and files as workers reported them."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.base import Base as Base
from db.base import ExactFloat


class StoreIdentity(Base):
    """What this store is called by those who work for it: the newest row counts.

    A copy that is restored gets another identity, so that nobody takes it for the store it was copied from."""

    __tablename__ = "store_identities"

    id: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(String(16))
    origin: Mapped[str] = mapped_column(String(16))
    """made: the first; copied: written into a backup; restored: workers knew more than the store."""
    began_at: Mapped[float]


class DeletedAttempt(Base):
    """An attempt that was deleted here: its worker may end what is left of it.

    One that is neither here nor among the attempts is unknown: an older backup was restored."""

    __tablename__ = "deleted_attempts"

    fence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uid: Mapped[str | None] = mapped_column(String(16))


class Run(Base):
    """What a person asked for; never changed by a worker."""

    __tablename__ = "runs"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    project: Mapped[str] = mapped_column(Text, index=True)
    spec: Mapped[dict[str, Any]]
    created_at: Mapped[float] = mapped_column(index=True)


class Attempt(Base):
    """One execution of a run on a set of nodes; its primary key is the fencing number."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("run_id", "number"), {"sqlite_autoincrement": True})

    fence: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    number: Mapped[int]
    uid: Mapped[str | None] = mapped_column(String(16), default=lambda: secrets.token_hex(8))
    """Random: a store that was restored gives fencing numbers a second time, but never this."""
    created_at: Mapped[float]
    stop_requested_at: Mapped[float | None]
    stacks_requested_at: Mapped[float | None]
    end_requested_at: Mapped[float | None]
    """When the run's own policy decided that it ends; every node then hears `stop`."""
    end_reason: Mapped[str | None] = mapped_column(String(32))
    end_message: Mapped[str | None] = mapped_column(Text)
    resize_requested_at: Mapped[float | None]
    """When it was decided at a checkpoint that it ends, for the next attempt to go on with other nodes."""
    resize_message: Mapped[str | None] = mapped_column(Text)
    """at checkpoint last.pt to go on with 3 nodes: gpu-3 is free"""
    turn_since: Mapped[float | None]
    """Since when it counts as waiting, where it goes on by itself: with the turn of the attempt before."""
    not_before: Mapped[float | None]
    """It waits in the queue until then: a restart that follows failures at once would only fail again."""
    restarts: Mapped[int] = mapped_column(default=0)
    """Of the run's own restarts, how many led to it since a person launched or resumed the run.

    Wishes; everything below are facts."""
    resume_checkpoint_id: Mapped[int | None]
    changes: Mapped[dict[str, Any] | None]
    """Fields of the run's spec that are different for this attempt: nodes, accumulate, lr."""
    state: Mapped[str] = mapped_column(String(16), index=True)
    waiting_for: Mapped[str | None] = mapped_column(Text)
    expected_start_at: Mapped[float | None]
    reason: Mapped[str | None] = mapped_column(String(32))
    message: Mapped[str | None] = mapped_column(Text)
    next_step: Mapped[str | None] = mapped_column(Text)
    error: Mapped[dict[str, Any] | None]
    placed_at: Mapped[float | None]
    started_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    master_addr: Mapped[str | None] = mapped_column(Text)
    master_port: Mapped[int | None]
    preflighted_at: Mapped[float | None]
    """When all its nodes were found fit to start together; from then on they may."""

    @property
    def end_wished_at(self) -> float | None:
        """When a person or the run's policy wished that it ends."""
        wishes = (self.stop_requested_at, self.end_requested_at, self.resize_requested_at)
        return next((wish for wish in wishes if wish is not None), None)


class Node(Base):
    """A machine with a worker, as it described itself."""

    __tablename__ = "nodes"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    instance_id: Mapped[str] = mapped_column(Text)
    token_hash: Mapped[str] = mapped_column(String(64), index=True)
    drain_requested_at: Mapped[float | None]
    unknown_ends: Mapped[list[Any] | None]
    """uids (or RUN/ATTEMPT) of its unknown attempts that somebody wants ended.

    Wishes; everything below are facts."""
    unknown_attempts: Mapped[list[Any] | None]
    """What it trains, or has trained and not reported, that this store does not know."""
    protocol: Mapped[int | None]
    """The version of the messages its worker speaks; None: the first, which named none."""
    hostname: Mapped[str] = mapped_column(Text)
    address: Mapped[str] = mapped_column(Text)
    devices: Mapped[list[Any]]
    labels: Mapped[dict[str, Any]]
    info: Mapped[dict[str, Any]]
    load: Mapped[dict[str, Any] | None]
    pool: Mapped[str] = mapped_column(String(32), default="", server_default="")
    """Empty: one of ours; `slurm`: a gateway; `slurm:FENCE`: of a Slurm job, for that attempt alone."""
    foreign_devices: Mapped[list[Any] | None]
    """Ids of those that processes which are not ours occupy."""
    first_seen: Mapped[float]
    last_seen: Mapped[float]
    removed_at: Mapped[float | None]
    """Kept for the history of what ran there; no worker speaks for it any more."""


class JoinToken(Base):
    """What lets workers register for a time; the secret itself is shown once and not kept."""

    __tablename__ = "join_tokens"

    id: Mapped[str] = mapped_column(String(8), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    secret_hash: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[float]
    expires_at: Mapped[float]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    uses: Mapped[int]


class Task(Base):
    """One node's share of an attempt."""

    __tablename__ = "parts"

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
    """Of the Python that trains there: its path, and the versions of python, torch, CUDA and NCCL."""
    preflight: Mapped[dict[str, Any] | None]
    """What the node found before it might start."""
    stacks: Mapped[dict[str, Any] | None]
    """Where its ranks stood when somebody last asked."""
    reported_at: Mapped[float | None]
    lost_at: Mapped[float | None]
    """When it was written off with its node; None again once that has said that no process of it is left."""


class Job(Base):
    """The Slurm job of an attempt, as its gateway reports it."""

    __tablename__ = "jobs"

    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), primary_key=True)
    gateway_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), index=True)
    said: Mapped[dict[str, Any] | None]
    """The last report; None before the first."""
    ended_at: Mapped[float | None]


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


class Series(Base):
    """One named curve of one attempt and what a table needs of it without opening it."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("fence", "node_rank", "source", "tag"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"))
    node_rank: Mapped[int]
    source: Mapped[str] = mapped_column(String(8))
    tag: Mapped[str] = mapped_column(Text)
    count: Mapped[int] = mapped_column(BigInteger)
    first_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    first_wall: Mapped[float]
    last_wall: Mapped[float]
    last_value: Mapped[float] = mapped_column(ExactFloat)
    finite_sum: Mapped[float]
    finite_count: Mapped[int] = mapped_column(BigInteger)
    not_finite_since: Mapped[int | None] = mapped_column(BigInteger)
    """First step of the equal values, all NaN or all the same infinity, that the series ends with."""


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
    """A file rank 0 saved, on its way or whole."""

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
    """What every parameter's name begins with without need."""
    location: Mapped[str | None] = mapped_column(Text)
    """Its object, s3://BUCKET/KEY; None: it is in the directory of files."""
    upload_id: Mapped[str | None] = mapped_column(Text)
    """Of the multipart upload that brings it to its bucket."""
    upload_began_at: Mapped[float | None]
    trouble: Mapped[str | None] = mapped_column(Text)
    """One sentence while it cannot be stored."""


class Discarded(Base):
    """An object that nobody wants any more and that its bucket may still have."""

    __tablename__ = "discarded"

    location: Mapped[str] = mapped_column(Text, primary_key=True)
    discarded_at: Mapped[float]


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


class FindingRow(Base):
    """Something wrong with an attempt, as one of its nodes saw it."""

    __tablename__ = "findings"
    __table_args__ = (UniqueConstraint("fence", "node_rank", "kind"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"))
    node_rank: Mapped[int]
    kind: Mapped[str] = mapped_column(Text)
    evidence: Mapped[str] = mapped_column(Text)
    meaning: Mapped[str] = mapped_column(Text)
    mend: Mapped[str] = mapped_column(Text)
    first_at: Mapped[float]
    gone_at: Mapped[float | None]
    """When it was no longer so; None while it is."""


class Check(Base):
    """A preflight that somebody asked for, or that a run needs for the bandwidth between its nodes."""

    __tablename__ = "checks"

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int | None] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), unique=True)
    """The attempt that waits for it."""
    python: Mapped[str | None] = mapped_column(Text)
    bandwidth: Mapped[bool]
    asked_at: Mapped[float]
    """Wishes; everything below are facts."""
    stage: Mapped[int]
    """0: nodes look at themselves; 1: at the way to each other; each further one measures disjoint pairs."""
    stage_at: Mapped[float]
    rounds: Mapped[list[Any]]
    """The pairs of each further stage: [[[node rank, node rank], …], …]."""
    measured: Mapped[list[Any]]
    """[node rank, node rank, bytes per second or null, what went wrong or null]."""
    ended_at: Mapped[float | None] = mapped_column(index=True)


class CheckPart(Base):
    """One node's share of a preflight."""

    __tablename__ = "check_parts"

    check_id: Mapped[int] = mapped_column(ForeignKey("checks.id", ondelete="CASCADE"), primary_key=True)
    node_rank: Mapped[int] = mapped_column(primary_key=True)
    node_id: Mapped[str] = mapped_column(String(10), index=True)
    node: Mapped[str] = mapped_column(Text)
    """Its name then."""
    devices: Mapped[list[Any]]
    facts: Mapped[dict[str, Any] | None]
    answered_stage: Mapped[int]
    """The last stage it has answered; -1: none."""
    silent_s: Mapped[float | None]
    """Seconds since its last word when it was given up."""


class PairPass(Base):
    """Two nodes that an all-reduce went through between, and what they were then."""

    __tablename__ = "pair_passes"

    node_a: Mapped[str] = mapped_column(String(10), primary_key=True)
    node_b: Mapped[str] = mapped_column(String(10), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    """Of both nodes' addresses and versions: another one has to be measured anew."""
    bytes_per_s: Mapped[float]
    at: Mapped[float]


class HistoryEntry(Base):
    """One line of what happened when, for people."""

    __tablename__ = "history"
    __table_args__ = (Index("history_of_run", "run_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    attempt: Mapped[int | None]
    at: Mapped[float]
    text: Mapped[str] = mapped_column(Text)
