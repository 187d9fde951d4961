"""How often a working directory is scanned for new files."""

from __future__ import annotations

SCAN_EVERY_S = 1.0
PAUSE_PER_SCAN = 20
"""A huge directory is scanned less often: scanning takes at most a twentieth of the time."""


def pause_after(took_s: float) -> float:
    """Return the seconds from a scan that took `took_s` seconds to the next one."""
    return max(SCAN_EVERY_S, PAUSE_PER_SCAN * took_s)
