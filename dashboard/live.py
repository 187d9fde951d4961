"""Who looks at which run right now: changes go to browsers as they happen, workers are woken when wishes change."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

LONGEST_QUEUE = 512
"""Messages a slow viewer may be behind before it is given the whole picture again instead."""

Message = Mapping[str, Any]


class Peers(Protocol):
    """Other dashboards on the same store; a store in a file has none."""

    def watched(self, run_id: str) -> bool:
        """Does anybody look at this run there?"""

    def watching_changed(self) -> None:
        """Somebody here began to look at a run, or stopped."""

    def tell(self, run_id: str, kind: str) -> None:
        """Something about a run is different."""

    def tell_wishes(self) -> None:
        """What some node should run is different."""


class Viewer:
    """The queue of one browser page or one follower of a log."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._wake = asyncio.Event()
        self.must_resync = False

    def put(self, message: Message) -> None:
        """Add a message; a viewer that is too far behind forgets them all and starts afresh."""
        if len(self._messages) >= LONGEST_QUEUE:
            self._messages.clear()
            self.must_resync = True
        else:
            self._messages.append(message)
        self._wake.set()

    def wake(self) -> None:
        """Let `take` return, be it with nothing."""
        self._wake.set()

    async def take(self) -> list[Message]:
        """Everything that has happened since the last call; waits for something to happen."""
        await self._wake.wait()
        self._wake.clear()
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def needs_resync(self) -> bool:
        """True once after messages were dropped."""
        dropped, self.must_resync = self.must_resync, False
        return dropped


class Hub:
    """Connects those who write (any thread) with those who watch (the event loop)."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._viewers: dict[str, set[Viewer]] = {}
        self._lock = threading.Lock()
        self._wishes = _Signal()
        self.closing = False
        self.peers: Peers | None = None

    def start(self) -> None:
        """Called inside the event loop that serves."""
        self._loop = asyncio.get_running_loop()
        self.closing = False

    def close(self) -> None:
        """Let every viewer and every waiting worker go, so that the server can end. From any thread."""
        self.closing = True
        self._in_loop(self._release)

    def watched(self, run_id: str) -> bool:
        """Does anybody look at this run live, here or at another dashboard?"""
        return run_id in self._viewers or (self.peers is not None and self.peers.watched(run_id))

    def watched_runs(self) -> list[str]:
        """The runs somebody looks at here."""
        with self._lock:
            return list(self._viewers)

    def publish(self, run_id: str, message: Message) -> None:
        """Tell everybody who watches the run; costs nothing when nobody does. From any thread."""
        self.deliver(run_id, message)
        if self.peers is not None:
            self.peers.tell(run_id, message["type"])

    def deliver(self, run_id: str, message: Message) -> None:
        """Tell those who watch the run at this dashboard. From any thread."""
        if run_id in self._viewers:
            self._in_loop(self._deliver, run_id, message)

    @contextmanager
    def viewer(self, run_id: str) -> Iterator[Viewer]:
        """A queue of what happens to the run from now on. Inside the event loop only."""
        viewer = Viewer()
        with self._lock:
            first = run_id not in self._viewers
            self._viewers.setdefault(run_id, set()).add(viewer)
        if first:
            self._watching_changed()
        try:
            yield viewer
        finally:
            self._forget(run_id, viewer)

    def wishes_changed(self) -> None:
        """Wake the workers that wait for work, at every dashboard. From any thread."""
        self.wake_workers()
        if self.peers is not None:
            self.peers.tell_wishes()

    def wake_workers(self) -> None:
        """Wake the workers that wait at this dashboard. From any thread."""
        self._in_loop(self._wishes.fire)

    def wishes(self) -> asyncio.Event:
        """An event that is set at the next change of wishes. Take it before looking, then wait for it."""
        return self._wishes.next

    def _forget(self, run_id: str, viewer: Viewer) -> None:
        with self._lock:
            viewers = self._viewers[run_id]
            viewers.discard(viewer)
            if viewers:
                return
            del self._viewers[run_id]
        self._watching_changed()

    def _watching_changed(self) -> None:
        self.wake_workers()
        if self.peers is not None:
            self.peers.watching_changed()

    def _deliver(self, run_id: str, message: Message) -> None:
        for viewer in tuple(self._viewers.get(run_id, ())):
            viewer.put(message)

    def _release(self) -> None:
        self._wishes.fire()
        for viewers in tuple(self._viewers.values()):
            for viewer in tuple(viewers):
                viewer.wake()

    def _in_loop(self, function: Any, *args: Any) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop was closed in between: nobody is left to be told
            return


class _Signal:
    """An event that is replaced each time it fires, so that no waiter can miss or keep it."""

    def __init__(self) -> None:
        self.next = asyncio.Event()

    def fire(self) -> None:
        fired, self.next = self.next, asyncio.Event()
        fired.set()
