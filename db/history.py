"""The history of a run, a line for each event."""

from __future__ import annotations

from sqlalchemy.orm import Session

from db.models import HistoryEntry


def add_history(session: Session, run_id: str, attempt: int | None, now: float, text: str) -> None:
    """Add a line to the run's history."""
    session.add(HistoryEntry(run_id=run_id, attempt=attempt, at=now, text=text))
