"""The owners of tokens, and the last contact with each node; used by every request of a worker."""

from __future__ import annotations

import logging
import threading

from dashboard.clock import Clock
from db.engine import Store
from db.nodes import node_reports
from db.nodes.node_reports import Claim, Heartbeat
from db.nodes.node_tokens import TurnedAway
from domain.liveness import LOST_AFTER_S
from domain.messages import NodeFacts, NodeLoad

log = logging.getLogger("rankzero")


class NodeRegistry:
    """Tokens and contacts of all nodes.

    Contacts are stored once a second for all nodes together: a thousand heartbeats are one transaction."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._node_by_token: dict[bytes, str] = {}
        self._contacts: dict[str, Heartbeat] = {}
        self._contacts_in_writing: dict[str, Heartbeat] = {}
        store.heard_of = self.heard_of
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def node_of_token(self, token: bytes) -> str | TurnedAway | None:
        """The id of the node with this token, or why it is no longer valid, or None."""
        if (node_id := self._node_by_token.get(token)) is not None:
            return node_id
        try:
            node = node_reports.node_of_token(self._store, token.decode("ascii"))
        except UnicodeDecodeError:
            return None
        if isinstance(node, str):
            self._node_by_token[token] = node
        return node

    def register(
        self, facts: NodeFacts, claim: Claim | None, lost_after_s: float = LOST_AFTER_S
    ) -> node_reports.RegisteredNode:
        """Register a worker; its earlier token ends."""
        registration = node_reports.register_node(self._store, facts, claim, self._clock(), lost_after_s)
        self.forget(registration.node_id)
        log.info("node %s registered as %s", facts.name, registration.node_id)
        return registration

    def forget(self, node_id: str) -> None:
        """Forget the node's token: the node registered elsewhere, or was removed."""
        with self._lock:
            self._node_by_token = {t: n for t, n in self._node_by_token.items() if n != node_id}

    def record_contact(self, node_id: str, load: NodeLoad | None = None) -> None:
        """Note a contact with the node, and its load when it sent one."""
        now = self._clock()
        with self._lock:
            previous = self._contacts.get(node_id)
            self._contacts[node_id] = Heartbeat(now, load or (previous.load if previous else None))

    def heard_of(self, node_id: str) -> float:
        """Time of the node's last contact that is not stored yet; 0 when all contacts are."""
        contact = self._contacts.get(node_id) or self._contacts_in_writing.get(node_id)
        return contact.at if contact else 0.0

    def write_down(self) -> None:
        """Store the contacts since the last call, unless another thread is storing them."""
        if not self._writing.acquire(blocking=False):
            return
        try:
            with self._lock:
                self._contacts_in_writing, self._contacts = self._contacts, {}
            node_reports.heartbeats_received(self._store, self._contacts_in_writing)
        except Exception:
            with self._lock:  # try again next time; newer contacts win
                self._contacts = self._contacts_in_writing | self._contacts
            raise
        finally:
            self._contacts_in_writing = {}
            self._writing.release()
