"""Describe how a process ended."""

from __future__ import annotations

import signal


def describe_exit(code: int) -> str:
    """exit code 1, or SIGKILL for a negative code (Python's convention for signals)."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
