"""Where people have signed in before: the addresses of their sessions, which the store has for weeks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from dashboard.security.identity.sessions import UNREADABLE
from db.engine import Store
from db.people import accounts, login_sessions

REREAD_AFTER_S = 60.0


class Place(NamedTuple):
    """An address, and a person who signed in there."""

    address: str | None
    person: str


class KnownAddresses:
    """The places of sign-ins: what the store has is read at most once a minute, those of this dashboard count at once.

    The store keeps sessions for a week after their end, so neither a restart nor signing out forgets a place."""

    def __init__(
        self, read: Callable[[], set[Place]], person_of: Callable[[str], str | None], now: Callable[[], float]
    ) -> None:
        """`read` gives the store's places; `person_of` the name of whoever signs in with a name or e-mail address."""
        self._read, self._person_of, self._now = read, person_of, now
        self._places: frozenset[Place] = frozenset()
        self._addresses: frozenset[str | None] = frozenset()
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def note(self, address: str, person: str) -> None:
        """Note that this person signs in there now."""
        self._add({Place(address, person)})

    def addresses(self) -> frozenset[str | None]:
        """All of the addresses; while the store cannot be read, those that were known before. For threads."""
        if self._is_due():
            self._read_at = self._now()
            with suppress(*UNREADABLE):
                self._add(self._read())
        return self._addresses

    async def know(self, address: str) -> bool:
        """Whether somebody has signed in there."""
        known = await run_in_threadpool(self.addresses) if self._is_due() else self._addresses
        return address in known

    async def know_person(self, address: str, account: str) -> bool:
        """Whether the person with this name or e-mail address has signed in there."""
        if not await self.know(address):
            return False
        with suppress(*UNREADABLE):
            person = await run_in_threadpool(self._person_of, account)
            return person is not None and Place(address, person) in self._places
        return False

    def _is_due(self) -> bool:
        return self._now() - self._read_at >= REREAD_AFTER_S

    def _add(self, places: Iterable[Place]) -> None:
        with self._lock:
            self._places = self._places.union(places)
            self._addresses = frozenset(place.address for place in self._places)


def known_in(store: Store, now: Callable[[], float]) -> KnownAddresses:
    """Return the places of the sessions in a store."""

    def person_of(account: str) -> str | None:
        entry = accounts.entry(store, account)
        return entry.name if entry is not None else None

    return KnownAddresses(lambda: {Place(*one) for one in login_sessions.places(store)}, person_of, now)
