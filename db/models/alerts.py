"""Alerts: the rules that people set, and the events that messages are sent about."""

from __future__ import annotations

from sqlalchemy import ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from db.models.base import Base
from db.models.people import NAME


class Alert(Base):
    """A rule, and the address that its messages go to."""

    __tablename__ = "alerts"

    id: Mapped[str] = mapped_column(String(10), primary_key=True)
    rule: Mapped[str] = mapped_column(Text)
    target: Mapped[str] = mapped_column(Text)
    """The address with its secrets, which must not be shown."""
    secret: Mapped[str | None] = mapped_column(Text)
    """What the messages of a webhook are signed with; None for targets of Apprise."""
    project: Mapped[str | None] = mapped_column(Text)
    """Only runs of this project."""
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    """Only this run."""
    act: Mapped[str | None] = mapped_column(String(16))
    """What it does to a run that meets the rule: end or rollback; None: it only tells."""
    lr_factor: Mapped[float | None]
    """Of the learning rate after a rollback."""
    by: Mapped[str | None] = mapped_column(NAME)
    """Who made it."""
    created_at: Mapped[float]
    last_sent_at: Mapped[float | None]
    """Observed state: when a receiver last accepted a message."""
    gathers_until: Mapped[float | None]
    """Until then further events wait, to be sent in one message."""


class AlertEvent(Base):
    """An event of a rule, recorded once, and the state of its message."""

    __tablename__ = "alert_events"
    __table_args__ = (UniqueConstraint("alert_id", "key"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    alert_id: Mapped[str] = mapped_column(ForeignKey("alerts.id", ondelete="CASCADE"))
    key: Mapped[str] = mapped_column(Text)
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    """None: a test message."""
    at: Mapped[float]
    sentence: Mapped[str] = mapped_column(Text)
    act: Mapped[str | None] = mapped_column(String(16))
    """What was done to the run, in the same transaction."""
    state: Mapped[str] = mapped_column(String(16), index=True)
    message_id: Mapped[str | None] = mapped_column(String(32))
    """The message that it was last sent in."""
    tries: Mapped[int] = mapped_column(default=0)
    next_try_at: Mapped[float]
    tried_at: Mapped[float | None]
    problem: Mapped[str | None] = mapped_column(Text)
    """Why it was not sent, or not yet."""
