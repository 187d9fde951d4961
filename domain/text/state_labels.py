"""States of nodes and devices as people read them; the JSON keeps its own names."""

from __future__ import annotations

_LABELS = {"alive": "online", "foreign": "used by others"}


def state_label(state: str) -> str:
    """Return the label of a node's or device's state on pages and in tables."""
    return _LABELS.get(state, state)
