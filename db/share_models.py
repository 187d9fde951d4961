"""The table of read-only links to runs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from db.base import Base


class SharedLink(Base):
    """A link that shows some runs to whoever has it, until a date."""

    __tablename__ = "shared_links"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(String(64))
    runs: Mapped[list[Any]]
    """Ids, in the order of the comparison; some may have been deleted since."""
    created_at: Mapped[float]
    expires_at: Mapped[float]
    revoked_at: Mapped[float | None]
