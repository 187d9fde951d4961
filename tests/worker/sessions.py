"""The weight of processes' sessions on the processor."""

from __future__ import annotations

from pathlib import Path


def session_niceness(pid: int | str = "self") -> str:
    """Return the nice value of a process's session; "0" also where the kernel does not divide the cores by session."""
    session = Path(f"/proc/{pid}/autogroup")
    words = session.read_text().split() if session.exists() else []
    return words[-1] if words else "0"  # a container's first session has none of its own
