"""The tags that people give to runs, and the views of the list that they save."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.base import Base


class RunTag(Base):
    """One tag of a run."""

    __tablename__ = "run_tags"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    tag: Mapped[str] = mapped_column(Text, primary_key=True, index=True)


class SavedView(Base):
    """A named view of the list of runs."""

    __tablename__ = "saved_views"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    definition: Mapped[dict[str, Any]]
    """The fields of `domain.search.parser.ViewDefinition`."""
    saved_at: Mapped[float]
