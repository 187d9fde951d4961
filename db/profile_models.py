"""The table of profiles: one row for each chosen rank."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from db.base import Base


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
