"""When a node counts as silent, free for new work, and lost."""

from __future__ import annotations

SILENT_AFTER_S = 10.0


ALIVE_WITHIN_S = 15.0
"""Only nodes heard of so recently are given new work."""


LOST_AFTER_S = 30.0
