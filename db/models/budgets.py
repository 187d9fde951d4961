"""What the runs of a token with a budget take, and the launches that must not happen twice."""

from __future__ import annotations

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base


class Charge(Base):
    """What one attempt takes of its token's budget; it stays when the run is deleted."""

    __tablename__ = "charges"

    fence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    token_id: Mapped[str] = mapped_column(String(8), index=True)
    run_id: Mapped[str] = mapped_column(String(10))
    devices: Mapped[int]
    asked_at: Mapped[float]
    """When the attempt was asked for, from which on its devices count as in use."""
    placed_at: Mapped[float | None]
    """This and its end are the attempt's, copied when its run is erased."""
    ended_at: Mapped[float | None]
    least_s: Mapped[float]
    """Charged at once: the expected time, an hour at most."""


class LaunchKey(Base):
    """A key with which a program asked for a launch: asking again gets the same run."""

    __tablename__ = "launch_keys"

    by: Mapped[str] = mapped_column(String(40), primary_key=True)
    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64))
    """SHA-256 of what was asked for: another request with the same key is refused."""
    run_id: Mapped[str] = mapped_column(String(10))
    created_at: Mapped[float]
