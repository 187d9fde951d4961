"""The addresses from which people have signed in before: those of their sessions, which the store has for weeks."""

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


class KnownAddress(NamedTuple):
    """An address, and a person who signed in from there."""

    address: str | None
    person: str


class KnownAddresses:
    """The addresses of sign-ins: the store's are read at most once a minute, those of this dashboard count at once.

    The store keeps sessions for a week after their end, so neither a restart nor signing out forgets an address."""

    def __init__(
        self, read: Callable[[], set[KnownAddress]], person_of: Callable[[str], str | None], now: Callable[[], float]
    ) -> None:
        """`read` returns the store's addresses, `person_of` the name of the account with a name or e-mail address."""
        self._read, self._person_of, self._now = read, person_of, now
        self._of_people: frozenset[KnownAddress] = frozenset()
        self._addresses: frozenset[str | None] = frozenset()
        self._read_at = float("-inf")
        self._lock = threading.Lock()

    def note(self, address: str, person: str) -> None:
        """Note that this person signs in from there now."""
        self._add({KnownAddress(address, person)})

    def addresses(self) -> frozenset[str | None]:
        """All of the addresses; while the store cannot be read, those that were read before. For threads."""
        if self._is_due():
            self._read_at = self._now()
            with suppress(*UNREADABLE):
                self._add(self._read())
        return self._addresses

    async def has(self, address: str) -> bool:
        """Whether anyone has signed in from there."""
        addresses = await run_in_threadpool(self.addresses) if self._is_due() else self._addresses
        return address in addresses

    async def has_for(self, address: str, account: str) -> bool:
        """Whether the person with this name or e-mail address has signed in from there."""
        if not await self.has(address):
            return False
        with suppress(*UNREADABLE):
            person = await run_in_threadpool(self._person_of, account)
            return person is not None and KnownAddress(address, person) in self._of_people
        return False

    def _is_due(self) -> bool:
        return self._now() - self._read_at >= REREAD_AFTER_S

    def _add(self, of_people: Iterable[KnownAddress]) -> None:
        with self._lock:
            self._of_people = self._of_people.union(of_people)
            self._addresses = frozenset(one.address for one in self._of_people)


def known_addresses_in(store: Store, now: Callable[[], float]) -> KnownAddresses:
    """Return the addresses of the sessions in a store."""

    def person_of(account: str) -> str | None:
        entry = accounts.entry(store, account)
        return entry.name if entry is not None else None

    return KnownAddresses(lambda: {KnownAddress(*one) for one in login_sessions.addresses(store)}, person_of, now)
