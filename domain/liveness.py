"""The one rule of liveness: after how many seconds without a heartbeat a node is silent, and lost. Pure."""

from __future__ import annotations

from typing import Literal

Contact = Literal["alive", "no contact", "lost"]

SILENT_AFTER_S = 10.0
"""A node without a heartbeat for so long has no contact: pages say so, and it is given no new work."""

LOST_AFTER_S = 30.0
"""A node without a heartbeat for so long is lost; the setting RANKZERO_LOST_AFTER_S overrides it."""


def is_silent(silent_s: float, silent_after_s: float = SILENT_AFTER_S) -> bool:
    """Whether a node whose last heartbeat is `silent_s` seconds old counts as silent."""
    return silent_s >= silent_after_s


def contact_state(
    silent_s: float, lost_after_s: float = LOST_AFTER_S, silent_after_s: float = SILENT_AFTER_S
) -> Contact:
    """The contact with a node whose last heartbeat is `silent_s` seconds old: alive, no contact, or lost."""
    if silent_s >= lost_after_s:
        return "lost"
    return "no contact" if is_silent(silent_s, silent_after_s) else "alive"
