"""Refuse the token of a task once its run is erased or its node removed."""

from __future__ import annotations

from db.engine import Store
from db.exceptions import Superseded
from db.models import DeletedAttempt, Node
from db.nodes.node_reports import removal_words


def refusal(store: Store, fence: int, node_id: str) -> str | None:
    """The sentence that refuses an attempt's token whose node was removed. Raises Superseded for an erased attempt.

    The store alone decides, so that a restart changes nothing. One that does not know the attempt, as an older copy
    does not, has not erased it."""
    with store.read() as session:
        if session.get(DeletedAttempt, fence) is not None:
            raise Superseded(f"Attempt {fence} does not exist any more.")
        node = session.get(Node, node_id)
        return None if node is None or node.removed_at is None else removal_words(node.name, node.removed_at)
