"""Whether a worker speaks of this store, and of attempts that it knows; asked with every request, so remembered."""

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
    """One dashboard's memory of what its store knows; safe to use from any thread."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._known: set[Key] = set()
        with store.write() as session:
            row = identity.current(session)
            self.identity = row.identity
        if row.origin == "copied":
            log.warning("this store was restored from a copy: what happened after the copy is not in it")

    def refresh(self) -> None:
        """Another dashboard on this store may have given it another identity."""
        with self._store.read() as session:
            self.identity = identity.current(session).identity

    def is_familiar(self, header: str | None, held: Sequence[HeldAttempt]) -> bool:
        """Whether all that a worker says is known without a look at the store."""
        named, fence, label = (*(header or "").split(), "", "", "")[:3]
        keys = [Key(one.fence, one.label) for one in held]
        keys += [Key(int(fence), label)] if fence.isdigit() else []
        return named in ("", self.identity) and self._known.issuperset(keys)

    def hears(self, header: str | None) -> bool:
        """Whether a worker registered with this store as it is; one that remembers more shows that it is older.

        The header names the store, and the fencing number and label of the newest attempt that it gave the worker."""
        named, fence, label = (*(header or "").split(), "", "", "")[:3]
        if header is None:
            return True  # a worker from before stores had identities
        if named != self.identity:
            self.refresh()
        if named != self.identity:
            return False
        if not fence.isdigit() or self._is_known(Key(int(fence), label)):
            return True
        self._renew()
        return False

    def unknown(self, held: Sequence[HeldAttempt]) -> list[HeldAttempt]:
        """Those of a node's attempts that this store does not know."""
        return [one for one in held if not self._is_known(Key(one.fence, one.label))]

    def remembers(self, fence: int, label: str) -> bool:
        """Whether an attempt is known without a look at the store."""
        return Key(fence, label) in self._known

    def check(self, fence: int, label: str | None) -> None:
        """Raises UnknownAttempt; for a worker that does not know what that means a Rejection, to be asked again."""
        if label is not None:
            if not self._is_known(Key(fence, label)):
                name = "/".join(label.split("/")[:2])
                raise UnknownAttempt(f"This store does not know attempt {name} (fencing number {fence}).")
            return
        with self._store.read() as session:
            if fence <= identity.highest_fence(session):
                return
        raise Rejection(503, f"This store is older than attempt {fence}: restore a newer one.")

    def _is_known(self, key: Key) -> bool:
        if key in self._known:
            return True
        with self._store.read() as session:
            if not identity.knows(session, key):
                return False
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        self._known.add(key)
        return True

    def _renew(self) -> None:
        with self._store.write() as session:
            self.identity = identity.renew(session, "restored", self._clock()).identity
        log.warning(
            "this store is an older copy: a worker has had an attempt from it that it does not know. What trains "
            "and is not known here goes on; the Nodes page names it"
        )
