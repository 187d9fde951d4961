"""Digests of files, computed beside other work."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PIECE_BYTES = 1024 * 1024


@contextmanager
def digesting() -> Iterator[Digests]:
    """A thread that computes digests while the body goes on; after an exception no more begin."""
    with ThreadPoolExecutor(1) as pool:
        try:
            yield Digests(pool)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class Digests:
    """Files whose size and SHA-256 are asked for, one after another."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def of(self, path: Path, name: str) -> Future[dict[str, Any]]:
        """Begin with a file: name, size_bytes and sha256."""
        return self._pool.submit(describe, path, name)


def describe(path: Path, name: str) -> dict[str, Any]:
    """A file's name, size_bytes and sha256. Raises OSError."""
    with path.open("rb") as file:
        sha256 = hashlib.sha256()
        while piece := file.read(PIECE_BYTES):
            sha256.update(piece)
        return {"name": name, "size_bytes": file.tell(), "sha256": sha256.hexdigest()}
