"""Lets requests that ask the same at the same time share one read of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable

from starlette.concurrency import run_in_threadpool


class SharedReads:
    """Answers of reads that begin after all who share them have asked: nobody gets what was read before."""

    def __init__(self) -> None:
        self._reading: dict[Hashable, asyncio.Task[bytes]] = {}
        self._next: dict[Hashable, asyncio.Task[bytes]] = {}

    async def get(self, key: Hashable, read: Callable[[], bytes]) -> bytes:
        """Return what the next read of this key gives; raises what it raises. `read` may wait for the store."""
        if key not in self._next:
            self._next[key] = asyncio.create_task(self._read(key, read))
        return await asyncio.shield(self._next[key])

    async def _read(self, key: Hashable, read: Callable[[], bytes]) -> bytes:
        if key in self._reading:
            await asyncio.wait([self._reading[key]])
        self._reading[key] = self._next.pop(key)  # from here on others need a newer read
        try:
            return await run_in_threadpool(read)
        finally:
            if self._reading[key] is asyncio.current_task():
                del self._reading[key]
