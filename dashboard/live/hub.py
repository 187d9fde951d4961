"""Connects writers with viewers: browsers get changes at once, workers wake when their desired state changes."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from sqlalchemy.exc import SQLAlchemyError

from dashboard.json_responses import json_text
from db.metrics.curves import to_json_points
from db.metrics.series_names import public_name
from db.models import Series
from domain.messages import Point

LONGEST_QUEUE = 512
"""Messages that may wait for a slow viewer; beyond that, it is sent a new snapshot."""

Message = Mapping[str, Any]


class PeerChannel(Protocol):
    """Other dashboards on the same store; a SQLite store has none."""

    def watched(self, run_id: str) -> bool:
        """Whether anybody looks at this run at another dashboard."""

    def watching_changed(self) -> None:
        """Note that somebody here started or stopped to look at a run."""

    def announce_change(self, run_id: str, kind: str) -> None:
        """Announce that something about a run has changed."""

    def announce_desired_state(self, nodes: Collection[str] | None) -> None:
        """Announce that the desired state of these nodes (None: of any) has changed."""


class Viewer:
    """The message queue of one browser page or one follower of a log."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._wake = asyncio.Event()
        self.must_resync = False
        self.ignored: Collection[str] = frozenset()
        """Types of messages that it has no use for."""

    def put(self, message: Message) -> None:
        """Add a message; a viewer that is too far behind loses all messages and must resync."""
        if message["type"] in self.ignored:
            return
        if len(self._messages) >= LONGEST_QUEUE:
            self._messages.clear()
            self.must_resync = True
        else:
            self._messages.append(message)
        self._wake.set()

    def wake(self) -> None:
        """Let `take` return, even with no message."""
        self._wake.set()

    async def take(self) -> list[Message]:
        """All messages since the last call; waits for the first one."""
        await self._wake.wait()
        self._wake.clear()
        messages = list(self._messages)
        self._messages.clear()
        return messages

    def needs_resync(self) -> bool:
        """Whether messages were dropped since the last call."""
        must_resync, self.must_resync = self.must_resync, False
        return must_resync


class Hub:
    """Passes messages from writers (any thread) to viewers (the event loop)."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._viewers: dict[str, set[Viewer]] = {}
        self._lock = threading.Lock()
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.closing = False
        self.peers: PeerChannel | None = None
        self.nodes_of: Callable[[Iterable[str]], Collection[str]] | None = None
        """The nodes of given runs; it may read the store, so it is never called in the event loop."""
        self.on_desired_state: Callable[[Collection[str] | None], None] = lambda nodes: None
        """Called before the workers of these nodes (None: of all) are woken."""

    def start(self) -> None:
        """Attach the hub to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self.closing = False

    def close(self) -> None:
        """Release every viewer and every waiting worker, so that the server can end. From any thread."""
        self.closing = True
        self._in_loop(self._release)

    def watched(self, run_id: str) -> bool:
        """Whether anybody looks at this run, here or at another dashboard."""
        return run_id in self._viewers or (self.peers is not None and self.peers.watched(run_id))

    def watched_runs(self) -> list[str]:
        """The ids of the runs that somebody looks at here."""
        with self._lock:
            return list(self._viewers)

    def publish(self, run_id: str, message: Message) -> None:
        """Send a message to all viewers of the run, at every dashboard. From any thread."""
        self.deliver(run_id, message)
        if self.peers is not None:
            self.peers.announce_change(run_id, message["type"])

    def deliver(self, run_id: str, message: Message) -> None:
        """Send a message to the viewers of the run at this dashboard. From any thread."""
        if run_id in self._viewers:
            self._in_loop(self._deliver, run_id, message)

    def wake_viewers(self) -> None:
        """Have the channels of all viewers look at the rights of these again. From any thread."""
        self._in_loop(self._wake_viewers)

    @contextmanager
    def viewer(self, run_id: str) -> Iterator[Viewer]:
        """A queue of the run's messages from now on. Inside the event loop only."""
        viewer = Viewer()
        with self._lock:
            first = run_id not in self._viewers
            self._viewers.setdefault(run_id, set()).add(viewer)
        if first:
            self._watching_changed(run_id)
        try:
            yield viewer
        finally:
            self._forget(run_id, viewer)

    def desired_state_changed(self, nodes: Collection[str] | None = None) -> None:
        """Wake the polling workers of these nodes (None: of all), at every dashboard. From any thread.

        A worker that is missed here learns of the change when its poll ends."""
        self.wake_workers(nodes)
        if self.peers is not None:
            self.peers.announce_desired_state(nodes)

    def desired_state_of_runs_changed(self, run_ids: Iterable[str]) -> None:
        """Wake the polling workers of these runs' nodes, at every dashboard. From any thread but the event loop's."""
        self.desired_state_changed(self.nodes_of(run_ids) if self.nodes_of is not None else None)

    def wake_workers(self, nodes: Collection[str] | None = None) -> None:
        """Wake the workers of these nodes (None: of all) that poll this dashboard. From any thread."""
        if nodes is None or nodes:
            self.on_desired_state(nodes)
            self._in_loop(self._fire, nodes)

    def wake_workers_of(self, run_ids: Iterable[str]) -> None:
        """Wake the workers of these runs' nodes that poll this dashboard. From any thread but the event loop's."""
        try:
            nodes = self.nodes_of(run_ids) if self.nodes_of is not None else None
        except SQLAlchemyError:
            nodes = None
        self.wake_workers(nodes)

    @contextmanager
    def waiting(self, node_id: str) -> Iterator[asyncio.Event]:
        """An event that is set when the node's desired state changes. Inside the event loop only."""
        event = asyncio.Event()
        self._waiting.setdefault(node_id, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[node_id].discard(event)
            if not self._waiting[node_id]:
                del self._waiting[node_id]

    def _forget(self, run_id: str, viewer: Viewer) -> None:
        with self._lock:
            viewers = self._viewers[run_id]
            viewers.discard(viewer)
            if viewers:
                return
            del self._viewers[run_id]
        self._watching_changed(run_id)

    def _watching_changed(self, run_id: str) -> None:
        asyncio.get_running_loop().run_in_executor(None, self.wake_workers_of, [run_id])
        if self.peers is not None:
            self.peers.watching_changed()

    def _deliver(self, run_id: str, message: Message) -> None:
        for viewer in tuple(self._viewers.get(run_id, ())):
            viewer.put(message)

    def _wake_viewers(self) -> None:
        for viewers in tuple(self._viewers.values()):
            for viewer in tuple(viewers):
                viewer.wake()

    def _fire(self, nodes: Collection[str] | None) -> None:
        for node_id in tuple(self._waiting) if nodes is None else nodes:
            for event in self._waiting.get(node_id, ()):
                event.set()

    def _release(self) -> None:
        self._fire(None)
        for viewers in tuple(self._viewers.values()):
            for viewer in tuple(viewers):
                viewer.wake()

    def _in_loop(self, function: Any, *args: Any) -> None:
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        try:
            loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # the loop was closed in between
            return


def series_message(attempt: int, changes: Iterable[tuple[Series, Iterable[Point], bool]]) -> dict[str, object]:
    """New points of one attempt's series, to be appended to those shown; as an object and as JSON text.

    Each change says whether a later life of the script begins with its points."""
    series = {
        public_name(row): {
            "source": row.source,
            "attempt": attempt,
            "points": to_json_points(points),
            "reset": False,
            "begins_life": begins_life,
        }
        for row, points, begins_life in changes
    }
    return {"type": "series", "series": series, "text": json_text({"type": "series", "series": series})}
