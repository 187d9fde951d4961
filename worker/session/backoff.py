"""Pauses between retries of requests to the server."""

from __future__ import annotations

import random

LONGEST_PAUSE_S = 5.0


class Backoff:
    """When to retry: after growing pauses with random jitter, so that workers do not retry together."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._until = float("-inf")

    def is_due(self, now: float) -> bool:
        """Whether it is time to retry."""
        return now >= self._until

    def failed(self, now: float, took_s: float = 0.0) -> float:
        """Record a failed try that took `took_s` seconds; returns the seconds to wait, at least as many."""
        self._pause_s = min(LONGEST_PAUSE_S, max(0.2, self._pause_s * 2))
        wait_s = max(took_s, self._pause_s * random.uniform(0.5, 1.0))
        self._until = now + wait_s
        return wait_s

    def worked(self) -> None:
        """Record a success, which resets the pauses."""
        self._pause_s, self._until = 0.0, float("-inf")
