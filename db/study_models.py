"""The tables of scaling studies: what people requested, and the runs that belong to them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from db.base import Base


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
