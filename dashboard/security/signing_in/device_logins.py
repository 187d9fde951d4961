"""`rankzero login`: command lines that ask to be let in, and the answers of signed-in persons; guessing is slowed."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.security.limits import RateLimit
from db import acting
from db.engine import Store
from db.people import login_requests
from db.people.login_requests import LoginOutcome, LoginRequestView, NoSuchRequest
from db.token_hashes import hash_token
from domain.people.tokens import AccessTokenView, TokenWanted, check_form, check_token, new_secret

PERIOD_S = 600.0
MOST_ASKED, MOST_WRONG = 20, 10
"""Requests of one address, and wrong codes of one person, within PERIOD_S."""
MOST_WAITING = 500
LATER = "Too many wrong codes: wait ten minutes, then try again."


class TooManyRequests(Exception):
    """So many requests wait, or came from this address, that no more are taken for some minutes."""


class DeviceLogins:
    """The requests of command lines to be let in; safe to use from any thread."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self._asked, self._wrong = RateLimit(MOST_ASKED, PERIOD_S, now), RateLimit(MOST_WRONG, PERIOD_S, now)

    def ask(self, terms: TokenWanted, sender: str) -> tuple[LoginRequestView, str]:
        """Take a request; returns it and the secret that becomes the token. Raises InvalidRequest, TooManyRequests."""
        check_form(terms)
        if self._asked.is_reached(sender) or login_requests.waiting_count(self._store, self._now()) >= MOST_WAITING:
            raise TooManyRequests("Too many logins were asked for: wait ten minutes, then try again.")
        self._asked.count(sender)
        secret = new_secret()
        return login_requests.ask(self._store, terms, hash_token(secret), sender, self._now()), secret

    def outcome(self, code: str, secret: str) -> tuple[LoginOutcome, AccessTokenView | None]:
        """The state of a request, and its token once it is allowed. Raises NoSuchRequest."""
        return login_requests.outcome(self._store, code, hash_token(secret), self._now())

    def waiting(self, code: str) -> LoginRequestView:
        """The request with this code, for the actor. Raises NoSuchRequest, TooManyRequests."""
        person = acting.rights().by or ""
        if self._wrong.is_reached(person):
            raise TooManyRequests(LATER)
        try:
            return login_requests.waiting(self._store, code, self._now())
        except NoSuchRequest:
            self._wrong.count(person)
            raise

    def allow(self, code: str) -> AccessTokenView:
        """Let a command line in for the actor. Raises NoSuchRequest, TooManyRequests, Denied."""
        check_token(self.waiting(code).terms, acting.rights())
        return login_requests.allow(self._store, code, acting.rights().by or "", self._now())

    def refuse(self, code: str) -> None:
        """Refuse a request. Raises NoSuchRequest, TooManyRequests."""
        self.waiting(code)
        login_requests.refuse(self._store, code, acting.rights().by or "", self._now())
