"""How large a request may be to pass between a worker and its server: a proxy in between may have a limit."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
LEAST_BYTES = 1024
"""Nothing is cut into smaller pieces; whatever refuses these does not do so for their size."""
AGAIN_AFTER_S = 3600.0
"""After so long a larger one is tried: somebody may have raised the proxy's limit."""


class BodyLimit:
    """What one client found out, for all its attempts and threads; forgotten when the worker ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._most_bytes: int | None = None
        self._found_at = 0.0
        self._told_bytes: int | None = None

    @property
    def bytes(self) -> int | None:
        """A body of this size is worth a try; None: of any."""
        with self._lock:
            if self._most_bytes is not None and self._clock() - self._found_at >= AGAIN_AFTER_S:
                self._most_bytes = None
            return self._most_bytes

    def most(self, wanted_bytes: int) -> int:
        """So much of what is wanted is worth a try."""
        limit = self.bytes
        return wanted_bytes if limit is None else min(wanted_bytes, limit)

    def refused(self, size_bytes: int) -> None:
        """A body of this size did not pass for its size."""
        with self._lock:
            half = max(LEAST_BYTES, size_bytes // 2)
            if self._most_bytes is None or half < self._most_bytes:
                self._most_bytes, self._found_at = half, self._clock()

    def passed(self) -> None:
        """A body did; said once for each limit that was found."""
        with self._lock:
            if self._most_bytes in (None, self._told_bytes):
                return
            self._told_bytes = self._most_bytes
        log.warning("%s", self.notice)

    @property
    def notice(self) -> str | None:
        """What a person should know of it; None while no limit is known."""
        limit = self.bytes
        if limit is None:
            return None
        return (
            "A proxy before the server refuses large requests (413): data is sent in pieces of at most "
            f"{_size(limit)}. Raise the proxy's limit (nginx: client_max_body_size 0)."
        )


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1024**2:.3g} MiB" if size_bytes >= 1024**2 else f"{size_bytes / 1024:.3g} KiB"
