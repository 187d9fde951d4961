"""Rights that are taken while they are read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from dashboard.security.identity.identities import Identities
from db.engine import Store
from db.people import accounts
from domain.people.roles import Role
from tests.dashboard.persons import person
from tests.dashboard.running import Running


class TakingStore:
    """A store in which the role that was just read is taken before the reader goes on."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.identities: Identities | None = None

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Read, then take the role, once."""
        with self.store.read() as session:
            yield session
        identities, self.identities = self.identities, None
        if identities is not None:
            accounts.set_role(self.store, "ida", Role.VIEWER, None)
            identities.forget()


def test_rights_taken_while_they_are_read_are_not_remembered(shared: Running) -> None:
    person(shared.service, "ida", Role.ADMIN)
    store = TakingStore(shared.service.store)
    identities = Identities(store, lambda: 1000.0)  # type: ignore[arg-type]
    store.identities = identities
    identities.rights("ida")
    rights = identities.rights("ida")
    assert rights is not None and rights.everywhere is Role.VIEWER
