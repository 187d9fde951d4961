"""Whose browser a script of a page runs for: the guard names each WebSocket of Streamlit's, the page asks for it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import streamlit as st

from dashboard.security.identity.identities import Identities
from dashboard.security.identity.sessions import CURRENT, UNREADABLE
from db import acting
from db.people.login_sessions import StoredSession
from domain.people.rights import NOBODY, Rights

HEADER = "rankzero-visit"
STREAM = "/_stcore/stream"


class Visits:
    """The open pages, by a name that only this process knows; safe to use from any thread."""

    def __init__(self, identities: Identities) -> None:
        self.identities = identities
        self._open: dict[str, tuple[Rights, str | None, StoredSession | None]] = {}

    @contextmanager
    def naming(self, scope: MutableMapping[str, Any], rights: Rights) -> Iterator[None]:
        """Name a page's WebSocket in its headers for as long as it is open; what browsers name there is removed."""
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != HEADER.encode()]
        if scope["path"] != STREAM:
            yield
            return
        visit = secrets.token_urlsafe(16)
        scope["headers"].append((HEADER.encode(), visit.encode()))
        self._open[visit] = rights, acting.address(), CURRENT.get()
        try:
            yield
        finally:
            del self._open[visit]

    def enter(self) -> None:
        """Act for the person whose page this thread runs; for nobody while the store cannot say what they may do.

        A page that is just being closed keeps its rights."""
        rights, address, session = self._open.get(st.context.headers.get(HEADER, ""), (None, None, None))
        if rights is not None:
            acting.enter(self._fresh(rights), address)
            CURRENT.set(session)
        elif acting.rights().by is None:
            acting.enter(NOBODY)

    def _fresh(self, rights: Rights) -> Rights:
        try:
            return self.identities.fresh(rights)
        except UNREADABLE:  # the page says so where it reads, too
            return NOBODY
