"""What the store knows of itself: its identity, and the attempts that were deleted from it."""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base


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
