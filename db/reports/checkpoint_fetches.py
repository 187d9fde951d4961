"""Nodes' progress in fetching the checkpoint that their attempt starts from."""

from __future__ import annotations

from sqlalchemy.orm import Session

from db.models import Attempt, Node, Task
from db.records.history import add_history
from domain.messages import CheckpointFetch
from domain.text.formats import size


def record_progress(
    session: Session, attempt: Attempt, part: Task, fetch: CheckpointFetch, now: float
) -> None:
    """Store the progress as what the attempt waits for, and the complete download as a history line."""
    node = session.get_one(Node, part.node_id).name
    doing = f"{node} fetches the checkpoint {fetch.name}"
    if not fetch.is_verified:
        attempt.waiting_for = (
            f"{doing}: {size(fetch.done_bytes, is_coarse=True)} of {size(fetch.size_bytes, is_coarse=True)}"
        )
        return
    if (attempt.waiting_for or "").startswith(doing):
        attempt.waiting_for = None
    size_text = size(fetch.size_bytes, is_coarse=True)
    text = f"{node} has fetched the checkpoint {fetch.name} ({size_text}); its SHA-256 agrees"
    add_history(session, attempt.run_id, attempt.number, now, text)
