"""Whether a worker belongs to this store, and its attempts are known to it; checked on every request, so cached."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dashboard.clock import Clock
from dashboard.errors import Rejection
from db import identity
from db.engine import Store
from db.identity import Key, UnknownAttempt
from domain.messages import HeldAttempt

log = logging.getLogger("rankzero")
MOST_REMEMBERED = 100_000


class Lineage:
    """One dashboard's cache of the attempts that its store knows; safe to use from any thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
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

    def check(self, fence: int, label: str | None) -> None:
        """Raises UnknownAttempt unless the store knows the attempt; for a worker too old for that, Rejection."""
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
