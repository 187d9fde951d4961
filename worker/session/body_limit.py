"""Learns the largest request body that passes the proxies between a worker and its server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from domain.text.formats import size

log = logging.getLogger(__name__)
LEAST_BYTES = 1024
"""Bodies are never cut smaller; a refusal of one this small is not about its size."""
RETRY_AFTER_S = 3600.0
"""After this time a larger body is tried again: the proxy's limit may have been raised."""


class BodyLimit:
    """The limit that one client learned, shared by its attempts and threads; not stored."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._limit_bytes: int | None = None
        self._limited_at = 0.0
        self._logged_bytes: int | None = None

    @property
    def bytes(self) -> int | None:
        """The largest body size worth trying, in bytes; None without a limit."""
        with self._lock:
            if self._limit_bytes is not None and self._clock() - self._limited_at >= RETRY_AFTER_S:
                self._limit_bytes = None
            return self._limit_bytes

    def most(self, size_bytes: int) -> int:
        """`size_bytes`, or the limit if that is smaller."""
        limit = self.bytes
        return size_bytes if limit is None else min(size_bytes, limit)

    def refused(self, size_bytes: int) -> None:
        """Record that a body of this size was refused as too large."""
        with self._lock:
            half = max(LEAST_BYTES, size_bytes // 2)
            if self._limit_bytes is None or half < self._limit_bytes:
                self._limit_bytes, self._limited_at = half, self._clock()

    def passed(self) -> None:
        """Record that a body passed; logs each newly learned limit once."""
        with self._lock:
            if self._limit_bytes in (None, self._logged_bytes):
                return
            self._logged_bytes = self._limit_bytes
        log.warning("%s", self.notice)

    @property
    def notice(self) -> str | None:
        """A sentence about the limit for people; None without a limit."""
        limit = self.bytes
        if limit is None:
            return None
        return (
            "A proxy in front of the server refuses large requests (413): data is sent in pieces of at most "
            f"{size(limit)}. Raise the proxy's limit (nginx: client_max_body_size 0)."
        )
