"""The bodies of requests and answers: files read while they are sent, written as they come, and the largest to pass."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2

from domain.clock import SYSTEM_CLOCK, Clock
from domain.text.formats import size

log = logging.getLogger(__name__)
LEAST_BYTES = 1024
"""Bodies are never cut smaller; a refusal of one this small is not about its size."""
RETRY_AFTER_S = 3600.0
"""After this time a larger body is tried again: the proxy's limit may have been raised."""


class BodyLimit:
    """The limit that one client learned, shared by its attempts and threads; not stored."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._limit_bytes: int | None = None
        self._limited_at = 0.0
        self._logged_bytes: int | None = None

    @property
    def bytes(self) -> int | None:
        """The largest body size worth trying, in bytes; None without a limit."""
        with self._lock:
            if self._limit_bytes is not None and self._clock.now() - self._limited_at >= RETRY_AFTER_S:
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
                self._limit_bytes, self._limited_at = half, self._clock.now()

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


# A part of a file as the body of a request, read while it is sent.

READ_BYTES = 256 * 1024
MayContinue = Callable[[], bool]
"""Returns False once the worker is ending."""


class UploadInterrupted(Exception):
    """The worker is ending; uploaded bytes stay."""


@dataclass(frozen=True)
class FilePart:
    """`size_bytes` of an open file from `offset` on; iterating raises UploadInterrupted, and FileNotFoundError if the
    file is shorter than that."""

    descriptor: int
    offset: int
    size_bytes: int
    may_continue: MayContinue

    def __len__(self) -> int:
        return self.size_bytes

    def __iter__(self) -> Iterator[bytes]:
        offset, end = self.offset, self.offset + self.size_bytes
        while offset < end:
            if not self.may_continue():
                raise UploadInterrupted
            piece = os.pread(self.descriptor, min(READ_BYTES, end - offset), offset)
            if not piece:
                raise FileNotFoundError("the copy is shorter than before")
            yield piece
            offset += len(piece)


# Downloads from the bucket that the server redirects to, without sending the node's token there.

BUCKET_TIMEOUT = httpx2.Timeout(60.0, connect=5.0)


class BucketUnavailable(Exception):
    """The bucket cannot be reached or refuses the download."""


def fetch_from_bucket(url: str, partial: Path, offset_bytes: int, on_progress: Callable[[int], None]) -> None:
    """Resume the download of a file at `offset_bytes`. Raises BucketUnavailable."""
    headers = {"Range": f"bytes={offset_bytes}-"} if offset_bytes else {}
    try:
        with httpx2.stream("GET", url, headers=headers, timeout=BUCKET_TIMEOUT) as answer:
            if not answer.is_success:
                raise BucketUnavailable(f"the bucket answered {answer.status_code}")
            write_body(answer, partial, on_progress)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise BucketUnavailable(f"the bucket cannot be reached from here ({type(error).__name__})") from error


def write_body(answer: httpx2.Response, partial: Path, on_progress: Callable[[int], None]) -> None:
    """Write the body to the file: appended if the answer is partial (206), else from the start."""
    with partial.open("ab" if answer.status_code == 206 else "wb") as file:
        for chunk in answer.iter_bytes():
            file.write(chunk)
            on_progress(file.tell())
