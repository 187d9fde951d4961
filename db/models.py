"""The tables: runs and attempts as people requested them; tasks, points and files as workers reported them."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from db.alert_models import Alert as Alert
from db.alert_models import AlertEvent as AlertEvent
from db.base import Base as Base
from db.base import ExactFloat
from db.check_models import Check as Check
from db.check_models import CheckPart as CheckPart
from db.check_models import PairPass as PairPass
from db.import_models import ImportedRun as ImportedRun
from db.profile_models import ProfiledRank as ProfiledRank
from db.share_models import SharedLink as SharedLink
from db.study_models import ScalingRun as ScalingRun
from db.study_models import ScalingStudy as ScalingStudy
from db.sweep_models import Sweep as Sweep
from db.sweep_models import SweepTrial as SweepTrial
from db.tag_models import RunTag as RunTag
from db.tag_models import SavedView as SavedView


class StoreIdentity(Base):
    """The identity of this store for its workers: the newest row counts.

    A restored copy gets another identity, so that no worker takes it for the store it was copied from."""

    __tablename__ = "store_identities"

    id: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(String(16))
    origin: Mapped[str] = mapped_column(String(16))
    """made: the first identity; copied: written into a backup; restored: workers knew more than the store."""
    began_at: Mapped[float]


class DeletedAttempt(Base):
    """An attempt that was deleted here: its worker may end its remaining processes.

    One that is neither here nor among the attempts is unknown: an older backup was restored."""

    __tablename__ = "deleted_attempts"

    fence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    uid: Mapped[str | None] = mapped_column(String(16))


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
    stop_requested_at: Mapped[float | None]
    stacks_requested_at: Mapped[float | None]
    end_requested_at: Mapped[float | None]
    """When the run's policy decided to end it; every node is then assigned `stop`."""
    end_reason: Mapped[str | None] = mapped_column(String(32))
    end_message: Mapped[str | None] = mapped_column(Text)
    resize_requested_at: Mapped[float | None]
    """When its end was decided at a checkpoint, so that the next attempt continues on other nodes."""
    resize_message: Mapped[str | None] = mapped_column(Text)
    """at checkpoint last.pt to continue on 3 nodes: gpu-3 is free"""
    rollback: Mapped[dict[str, Any] | None]
    """The last good point, before which the next attempt begins (`domain.recovery.rollback`)."""
    turn_since: Mapped[float | None]
    """Queue time inherited from the previous attempt (automatic restarts)."""
    not_before: Mapped[float | None]
    """The earliest start: a pause before a restart, which would otherwise fail again at once."""
    restarts: Mapped[int] = mapped_column(default=0)
    """Number of automatic restarts before it since a person launched or resumed the run.

    Desired state; the columns below are observed state."""
    resume_checkpoint_id: Mapped[int | None]
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


class Task(Base):
    """One node's task of an attempt."""

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
    """The Python that trains there: its path, and the versions of python, torch, CUDA and NCCL."""
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
    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"), nullable=True)
    """NULL while its points are being imported (`db.archives.staging`): it belongs to no attempt yet."""
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


class Discarded(Base):
    """An object that must still be deleted from its bucket."""

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
    """Something wrong with an attempt, as reported by one of its nodes."""

    __tablename__ = "findings"
    __table_args__ = (UniqueConstraint("fence", "node_rank", "kind"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    fence: Mapped[int] = mapped_column(ForeignKey("attempts.fence", ondelete="CASCADE"))
    node_rank: Mapped[int]
    kind: Mapped[str] = mapped_column(Text)
    evidence: Mapped[str] = mapped_column(Text)
    meaning: Mapped[str] = mapped_column(Text)
    fix: Mapped[str] = mapped_column("mend", Text)
    first_at: Mapped[float]
    gone_at: Mapped[float | None]
    """When it was resolved; None while it persists."""


class HistoryEntry(Base):
    """One line of a run's history, for people."""

    __tablename__ = "history"
    __table_args__ = (Index("history_of_run", "run_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    attempt: Mapped[int | None]
    at: Mapped[float]
    text: Mapped[str] = mapped_column(Text)
