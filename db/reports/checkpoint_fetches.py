"""What nodes say of the checkpoint they fetch before they start from it."""

from __future__ import annotations

from sqlalchemy.orm import Session

from db.models import Attempt, Node, Task
from db.records.history import add_history
from domain.messages import CheckpointFetch
from domain.text.sizes import in_words


def told(session: Session, attempt: Attempt, part: Task, fetch: CheckpointFetch, now: float) -> None:
    """While it is on its way, how far it has come is what the attempt waits for; its arrival is history."""
    node = session.get_one(Node, part.node_id).name
    doing = f"{node} fetches the checkpoint {fetch.name}"
    if not fetch.is_verified:
        attempt.waiting_for = f"{doing}: {in_words(fetch.done_bytes)} of {in_words(fetch.size_bytes)}"
        return
    if (attempt.waiting_for or "").startswith(doing):
        attempt.waiting_for = None
    text = (
        f"{node} has fetched the checkpoint {fetch.name} ({in_words(fetch.size_bytes)}); its SHA-256 agrees"
    )
    add_history(session, attempt.run_id, attempt.number, now, text)
