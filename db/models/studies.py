"""Runs that belong together: scaling studies, and sweeps with their trials."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base


class ScalingStudy(Base):
    """One spec that is measured on several numbers of devices."""

    __tablename__ = "scaling_studies"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    spec: Mapped[dict[str, Any]]
    """The spec that all its runs share, with the snapshot of its code."""
    mode: Mapped[str] = mapped_column(String(8))
    """weak: the batch of each rank stays; strong: the global batch stays, or each of several."""
    steps: Mapped[int]
    """Steps of each run that are measured; with several global batches, of the largest one."""
    created_at: Mapped[float] = mapped_column(index=True)
    stop_requested_at: Mapped[float | None]
    """Desired state; the columns below are observed state."""
    points: Mapped[list[Any]]
    """devices, nodes, spec's fields of this size (`changes`), and the `problem` of one that could not be launched;
    of strong scaling also `global_batch_size`, `lr` (null: the script's own) and `steps`, which older ones lack."""
    ended_at: Mapped[float | None] = mapped_column(index=True)


class ScalingRun(Base):
    """A run that belongs to a point of a study."""

    __tablename__ = "scaling_runs"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("scaling_studies.id", ondelete="CASCADE"), index=True)
    point: Mapped[int]
    """Its place among the study's points."""


class Sweep(Base):
    """One spec that is trained with different parameters."""

    __tablename__ = "sweeps"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    spec: Mapped[dict[str, Any]]
    """The spec that all its trials share, with the snapshot of its code."""
    plan: Mapped[dict[str, Any]]
    created_at: Mapped[float] = mapped_column(index=True)
    stop_requested_at: Mapped[float | None]
    """Desired state; the columns below are observed state."""
    ended_at: Mapped[float | None] = mapped_column(index=True)
    message: Mapped[str | None] = mapped_column(Text)
    """Why it ended before its last trial."""


class SweepTrial(Base):
    """One trial: its run's parameters, and its result once that has ended."""

    __tablename__ = "sweep_trials"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweeps.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    """None where no run could be launched, or it was deleted."""
    params: Mapped[dict[str, Any]]
    rung: Mapped[int] = mapped_column(default=0)
    """Rungs of successive halving that it has passed."""
    rung_values: Mapped[list[Any] | None]
    """The metric at each rung that it reached, null where that is not finite."""
    pruned_at: Mapped[int | None] = mapped_column(BigInteger)
    """The step at which it was found not worth going on; the columns below are its result."""
    state: Mapped[str | None] = mapped_column(String(16))
    """succeeded, failed, stopped or pruned; None before its end."""
    value: Mapped[float | None]
    """None where the metric was not logged, or is not finite."""
    device_hours: Mapped[float | None]
    message: Mapped[str | None] = mapped_column(Text)
