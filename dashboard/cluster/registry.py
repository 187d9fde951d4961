"""The owners of tokens, the last contact with each node, and the workers of this store; used by every request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import replace

from dashboard.clock import AnchoredTime
from dashboard.errors import Rejection
from db import identity
from db.engine import Store
from db.identity import Key, UnknownAttempt
from db.nodes import node_reports
from db.nodes.join_tokens import TurnedAway
from db.nodes.node_reports import Claim, Heartbeat
from domain.clock import SYSTEM_CLOCK, Clock
from domain.liveness import LOST_AFTER_S
from domain.messages import HeldAttempt, NodeFacts, NodeLoad
from domain.people.rights import PROGRAM, Rights


class NodeRegistry:
    """Tokens and contacts of all nodes.

    Contacts are stored once a second for all nodes together: a thousand heartbeats are one transaction."""

    def __init__(self, store: Store, clock: AnchoredTime) -> None:
        self._store = store
        self._clock = clock
        self._node_by_token: dict[bytes, str] = {}
        self._rights: dict[str, Rights] = {}
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

    def rights(self, node_id: str) -> Rights:
        """The rights of a node's worker: the program's, signed with the node's name; read once for many requests."""
        if (rights := self._rights.get(node_id)) is None:
            rights = replace(PROGRAM, via=f"worker {node_reports.name_of_node(self._store, node_id)}")
            self._rights[node_id] = rights
        return rights

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
            self._rights.pop(node_id, None)

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


log = logging.getLogger("rankzero")

# Polls of nodes with nothing to do are answered from memory: of a thousand nodes most ask again and again.

KEPT_S = 60.0
"""A change that nobody told of, as another dashboard's while the database was away, is found after that."""


class IdleNodes:
    """The desired states of nodes that have nothing to do; safe to use from any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock, self.changes = clock, 0
        """How often `forget` was called."""
        self._states: dict[str, tuple[float, str, tuple[str, str]]] = {}

    def kept(self, node_id: str, store: str) -> tuple[str, str] | None:
        """The version and text of the node's state in the store of that identity, where it need not be read."""
        until, kept_store, state = self._states.get(node_id, (0.0, "", ("", "")))
        return state if self._clock.now() < until and kept_store == store else None

    def keep(self, node_id: str, store: str, state: tuple[str, str], changes: int) -> None:
        """Keep a state that was read when there had been so many changes, unless there was another since."""
        self._states[node_id] = self._clock.now() + KEPT_S, store, state
        if changes != self.changes:
            self._states.pop(node_id, None)

    def forget(self, nodes: Collection[str] | None = None) -> None:
        """Note that the desired state of these nodes (None: of all) has changed."""
        self.changes += 1
        for node_id in [*self._states] if nodes is None else nodes:
            self._states.pop(node_id, None)


# Whether a worker belongs to this store, and its attempts are known to it; checked on every request, so cached.

MOST_REMEMBERED = 100_000


class Lineage:
    """One dashboard's cache of the attempts that its store knows; safe to use from any thread."""

    def __init__(self, store: Store, clock: AnchoredTime) -> None:
        self._store, self._clock = store, clock
        self._confirmed: set[Key] = set()
        with store.write() as session:
            row = identity.current(session)
            self.identity = row.identity
        if row.origin == "copied":
            log.warning("this store was restored from a copy: it knows nothing that happened after the copy was made")

    def refresh(self) -> None:
        """Read the store's identity again: another dashboard may have changed it."""
        with self._store.read() as session:
            self.identity = identity.current(session).identity

    def is_familiar(self, header: str | None, held: Sequence[HeldAttempt]) -> bool:
        """Whether the cache confirms everything in a worker's request, without reading the store."""
        store_identity, fence, label = (*(header or "").split(), "", "", "")[:3]
        keys = [Key(attempt.fence, attempt.label) for attempt in held]
        keys += [Key(int(fence), label)] if fence.isdigit() else []
        return store_identity in ("", self.identity) and self._confirmed.issuperset(keys)

    def is_current(self, header: str | None) -> bool:
        """Whether a worker registered with this store in its current state.

        The header names the store, and the fencing token and label of the newest attempt it gave the worker.
        An attempt that the store does not know shows that the store is an older copy; it then gets a new identity."""
        store_identity, fence, label = (*(header or "").split(), "", "", "")[:3]
        if header is None:
            return True  # a worker from before stores had identities
        if store_identity != self.identity:
            self.refresh()
        if store_identity != self.identity:
            return False
        if not fence.isdigit() or self._confirm(Key(int(fence), label)):
            return True
        self._renew()
        return False

    def unknown(self, held: Sequence[HeldAttempt]) -> list[HeldAttempt]:
        """The node's attempts that this store does not know."""
        return [attempt for attempt in held if not self._confirm(Key(attempt.fence, attempt.label))]

    def remembers(self, fence: int, label: str) -> bool:
        """Whether the cache confirms the attempt, without reading the store."""
        return Key(fence, label) in self._confirmed

    def check_attempt(self, fence: int, label: str | None) -> None:
        """Raise UnknownAttempt unless the store knows the attempt; for a worker too old for that, Rejection."""
        if label is not None:
            if not self._confirm(Key(fence, label)):
                name = "/".join(label.split("/")[:2])
                raise UnknownAttempt(f"This store does not know attempt {name} (fencing token {fence}).")
            return
        with self._store.read() as session:
            if fence <= identity.highest_fence(session):
                return
        raise Rejection(503, f"This store is older than attempt {fence}: restore a newer one.")

    def _confirm(self, key: Key) -> bool:
        if key in self._confirmed:
            return True
        with self._store.read() as session:
            if not identity.knows(session, key):
                return False
        if len(self._confirmed) >= MOST_REMEMBERED:
            self._confirmed.clear()
        self._confirmed.add(key)
        return True

    def _renew(self) -> None:
        with self._store.write() as session:
            self.identity = identity.renew(session, "restored", self._clock()).identity
        log.warning(
            "this store is an older copy: a worker has an attempt from it that it does not know. Unknown runs "
            "continue to train; the Nodes page lists them"
        )
