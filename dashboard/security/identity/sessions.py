"""Signed-in browsers: their sessions in the store, read at most every other second, and the WebSockets they hold."""

from __future__ import annotations

import logging
import secrets
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar

from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.security.identity.fresh_answers import FRESH_FOR_S, FreshAnswers
from dashboard.security.identity.last_uses import LastUses
from dashboard.security.identity.open_sockets import OpenSockets
from dashboard.security.keys.token_files import Credentials
from db.engine import Store, StoreGone
from db.people import audit, login_sessions, users
from db.people.login_sessions import NoSuchSession, StoredSession
from domain.people.accounts import SessionView


class Sessions:
    """The sessions of one dashboard's store; safe to use from any thread."""

    def __init__(
        self, store: Store, credentials: Credentials, now: Callable[[], float], lifetime_s: float, visits: LastUses
    ) -> None:
        self.lifetime_s = lifetime_s
        self._store, self._credentials, self._now = store, credentials, now
        self._lock = threading.Lock()
        self._stored = FreshAnswers(self._read, now)
        self._unsaved: dict[str, StoredSession] = {}
        """Sessions that began while the store could not be written."""
        self._ended: dict[str, float] = {}
        """Until when the store may believe in sessions that ended here, where that could not be written."""
        self._open: Counter[tuple[str, str]] = Counter()
        """WebSockets by their key and person."""
        self._sockets = OpenSockets()
        self._visits = visits
        self._looked_at = float("-inf")

    def begin(self, user: str, way: str, address: str | None = None, browser: str | None = None) -> str:
        """Begin a session; returns its secret, the cookie's value."""
        secret, now = secrets.token_urlsafe(32), self._now()
        key = self._credentials.session_key(secret)
        session = StoredSession(key, user, way, address, now, now + self.lifetime_s, browser)
        self._visits.note(user)
        if not self._save(session):
            self._unsaved[key] = session
        return secret

    def _save(self, session: StoredSession) -> bool:
        """Store it; returns False if the store takes nothing: the token still signs in."""
        if self._store.trouble is not None:
            return False
        try:
            login_sessions.begin(self._store, session)
        except UNREADABLE:
            return False
        return True

    def write_down_refusal(self, name: str) -> None:
        """Note in the audit log, as far as the store takes it, that a sign-in with this name was refused."""
        with suppress(*UNREADABLE):
            audit.record_refused_sign_in(self._store, name)

    async def find(self, cookie: str) -> StoredSession | None:
        """The open session of a cookie. Raises what reading the store raises when it was never read."""
        if not 20 <= len(cookie) <= LONGEST_COOKIE or not cookie.isascii():
            return None
        return await self.with_key(self._credentials.session_key(cookie))

    async def with_key(self, key: str) -> StoredSession | None:
        """The open session with this key. Raises what reading the store raises when it was never read."""
        session, is_fresh = recalled = self._stored.recall(key) or (None, False)
        if not is_fresh:
            try:
                session = await run_in_threadpool(self._stored.answer, key)
            except UNREADABLE:
                if recalled == (None, False):
                    raise
        return self._still_open(session)

    def _read(self, key: str) -> StoredSession | None:
        if (unsaved := self._unsaved.get(key)) is not None:
            return unsaved
        return login_sessions.open_ones(self._store, [key], self._now()).get(key)

    def _still_open(self, session: StoredSession | None) -> StoredSession | None:
        is_over = session is None or session.secret_hash in self._ended or session.expires_at <= self._now()
        return None if is_over else session

    def saw(self, name: str) -> None:
        """Note that a person was here now."""
        self._visits.note(name)

    # -- ends ----------------------------------------------------------------------------------

    def end(self, key: str) -> None:
        """Sign a session out for good, and close its WebSockets."""
        now = self._now()
        self._forget([key], now)
        with suppress(*UNREADABLE):  # a full disk must not keep anybody signed in
            login_sessions.end(self._store, key, now)
        self._sockets.close(key)

    def end_one(self, name: str, session_id: str) -> None:
        """End one session of a person, by its id. Raises NoSuchSession."""
        keys = (s.secret_hash for s in self._of_person(name) if s.secret_hash.startswith(session_id))
        key = next(keys, None) if len(session_id) == ID_LENGTH else None
        if key is None:
            raise NoSuchSession(f"There is no session {session_id!r} of yours.")
        self.end(key)

    def end_of_person(self, name: str, but: str | None = None) -> None:
        """End all sessions of a person but one, and close their WebSockets at once."""
        now = self._now()
        keys = {session.secret_hash for session in self._unsaved.values() if session.user == name} - {but}
        self._forget(keys, now)
        login_sessions.end_all(self._store, name, now, but)
        self._forget([], now)
        for key, user in list(self._open):
            if user == name and key != but:
                self._sockets.close(key)

    def _forget(self, ended: Iterable[str], now: float) -> None:
        with self._lock:
            self._ended = {key: until for key, until in self._ended.items() if until > now}
            for key in ended:
                self._ended[key] = now + self.lifetime_s
                self._unsaved.pop(key, None)
        self._stored.forget()

    def of_person(self, name: str) -> list[SessionView]:
        """A person's browsers that are signed in, newest first."""
        current = CURRENT.get()
        return [_view(session, current) for session in self._of_person(name)]

    def _of_person(self, name: str) -> list[StoredSession]:
        unsaved = [session for session in list(self._unsaved.values()) if session.user == name]
        stored = login_sessions.of_person(self._store, name, self._now())
        return [session for session in (*unsaved, *stored) if self._still_open(session)]

    # -- WebSockets ----------------------------------------------------------------------------

    async def keep_open(self, key: str, user: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket until its session ends; the application then sees a disconnect.

        `key` is the session's, or `person NAME` where a proxy vouches for each request."""
        with self._lock:
            self._open[key, user] += 1
        try:
            await self._sockets.keep_open(key, app, scope, receive, send)
        finally:
            with self._lock:
                self._open[key, user] -= 1
                self._open += Counter()  # without those that are zero

    def tick(self) -> None:
        """Once a second: close what has ended elsewhere or by time, and store what could not be stored."""
        now = self._now()
        with suppress(*UNREADABLE):
            if now - self._looked_at >= FRESH_FOR_S:
                self._looked_at = now
                self._close_ended(now)
            self._unsaved = {key: session for key, session in self._unsaved.items() if not self._save(session)}
            if self._store.trouble is None:
                self._visits.write_down()

    def _close_ended(self, now: float) -> None:
        keys = {key for key, _ in list(self._open) if not key.startswith(PERSON)} - self._unsaved.keys()
        alive = login_sessions.open_ones(self._store, keys, now).keys() if keys else set()
        for key in keys - alive:
            self._forget([key], now)
            self._sockets.close(key)
        for key, user in list(self._open):
            if key.startswith(PERSON) and users.rights_of(self._store, user) is None:
                self._sockets.close(key)


log = logging.getLogger("rankzero")
LONGEST_COOKIE = 200
ID_LENGTH = 16
PERSON = "person "
UNREADABLE = (SQLAlchemyError, sqlite3.Error, OSError, StoreGone)
CURRENT: ContextVar[StoredSession | None] = ContextVar("session", default=None)
"""The session whose request or page runs in this thread or task; None: there is none, a token speaks."""


def _view(session: StoredSession, current: StoredSession | None) -> SessionView:
    is_current = current is not None and session.secret_hash == current.secret_hash
    key, way, address = session.secret_hash[:ID_LENGTH], session.way, session.address
    return SessionView(key, way, address, session.created_at, session.expires_at, is_current, session.browser)
