"""What is remembered of devices and nodes, and which of them are left out."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base
from db.models.people import NAME


class IncidentRow(Base):
    """Something that happened on a device or a node and tells of its health."""

    __tablename__ = "incidents"
    __table_args__ = (UniqueConstraint("machine", "key"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    machine: Mapped[str] = mapped_column(Text)
    """The id of a node; `slurm/NAME` for a node of Slurm's, which joins again for every job."""
    key: Mapped[str] = mapped_column(Text)
    """Identifies what happened: it is stored once, however often it is reported."""
    device: Mapped[str] = mapped_column(Text)
    """Empty: the entire node."""
    kind: Mapped[str] = mapped_column(String(20))
    at: Mapped[float]
    text: Mapped[str] = mapped_column(Text)
    number: Mapped[int | None]
    began_at: Mapped[float | None]
    """When the attempt was placed there."""
    is_strike: Mapped[bool]
    avoid: Mapped[bool]
    """Whether the run's next attempt better avoids it."""
    run_id: Mapped[str | None] = mapped_column(String(10), index=True)
    """Not a foreign key: the memory outlives the run."""
    attempt: Mapped[int | None]


class QuarantineRow(Base):
    """A device, or a whole node (empty device), on which nothing new starts."""

    __tablename__ = "quarantines"

    machine: Mapped[str] = mapped_column(Text, primary_key=True)
    device: Mapped[str] = mapped_column(Text, primary_key=True)
    since: Mapped[float]
    why: Mapped[str] = mapped_column(Text)


class HardwareTest(Base):
    """A test of a node's devices that somebody asked for."""

    __tablename__ = "hardware_tests"

    id: Mapped[int] = mapped_column(primary_key=True)
    node_id: Mapped[str] = mapped_column(String(10), index=True)
    devices: Mapped[list[Any]]
    by: Mapped[str | None] = mapped_column(NAME)
    """Who asked for it."""
    asked_at: Mapped[float]
    """Desired state; the columns below are observed state."""
    ended_at: Mapped[float | None]
    verdict: Mapped[str | None] = mapped_column(String(16))
    """passed, failed, or unknown where it could not be done."""
    results: Mapped[list[Any] | None]
    """What each test found (`domain.health.testing.DeviceResult`)."""
    reduce_bytes_per_s: Mapped[float | None]
    """Of its all-reduce, with which later ones are compared."""
