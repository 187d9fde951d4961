"""Which token is whose, and when each node was last heard of: asked and told with every request of a worker."""

from __future__ import annotations

import logging
import threading

from dashboard.clock import Clock
from db.engine import Store
from db.records.node_tokens import TurnedAway
from db.reports import nodes
from db.reports.nodes import Claim, Heard
from domain.liveness import LOST_AFTER_S
from domain.messages import NodeFacts, NodeLoad

log = logging.getLogger("rankzero")


class NodeRegistry:
    """What nodes say of themselves is written down once a second for all of them together: a thousand
    heartbeats are one transaction."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[bytes, str] = {}
        self._heard: dict[str, Heard] = {}
        self._being_written: dict[str, Heard] = {}
        store.heard_of = self.heard_of
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def node_of_token(self, token: bytes) -> str | TurnedAway | None:
        """The node that shows this token, or why it is none any more, or None."""
        if (node_id := self._known.get(token)) is not None:
            return node_id
        try:
            found = nodes.node_of_token(self._store, token.decode("ascii"))
        except UnicodeDecodeError:
            return None
        if isinstance(found, str):
            self._known[token] = found
        return found

    def register(
        self, facts: NodeFacts, claim: Claim | None, lost_after_s: float = LOST_AFTER_S
    ) -> nodes.RegisteredNode:
        """Take a worker in; its earlier token ends."""
        registration = nodes.register_node(self._store, facts, claim, self._clock(), lost_after_s)
        self.forget(registration.node_id)
        log.info("node %s registered as %s", facts.name, registration.node_id)
        return registration

    def forget(self, node_id: str) -> None:
        """The node's token has ended: it registered elsewhere, or was removed."""
        with self._lock:
            self._known = {t: n for t, n in self._known.items() if n != node_id}

    def seen(self, node_id: str, load: NodeLoad | None = None) -> None:
        """The node spoke; with its load when it sent one."""
        now = self._clock()
        with self._lock:
            before = self._heard.get(node_id)
            self._heard[node_id] = Heard(now, load or (before.load if before else None))

    def heard_of(self, node_id: str) -> float:
        """When a node spoke last, of what is not written down yet; 0 when all of it is."""
        heard = self._heard.get(node_id) or self._being_written.get(node_id)
        return heard.at if heard else 0.0

    def write_down(self) -> None:
        """Store what was heard since the last time, unless another thread is at it."""
        if not self._writing.acquire(blocking=False):
            return
        try:
            with self._lock:
                self._being_written, self._heard = self._heard, {}
            nodes.nodes_seen(self._store, self._being_written)
        except Exception:
            with self._lock:  # the next time, unless it is news of yesterday by then
                self._heard = self._being_written | self._heard
            raise
        finally:
            self._being_written = {}
            self._writing.release()
