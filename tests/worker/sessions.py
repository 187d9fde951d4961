"""The weight of this process's session on the processor."""

from __future__ import annotations

from worker.node.processes import AUTOGROUP


def session_niceness() -> str:
    """The nice value of this process's session, or "-" where it has none of its own: a container's first is without."""
    words = AUTOGROUP.read_text().split() if AUTOGROUP.exists() else []
    return words[-1] if words else "-"
