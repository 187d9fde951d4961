"""`rankzero login`: command lines that ask to be let in, and the answers of signed-in persons; guessing is slowed."""

from __future__ import annotations

from collections.abc import Callable

from dashboard.security.limits import RateLimit, TryLater
from dashboard.security.signing_in.known_addresses import KnownAddresses
from db import acting
from db.engine import Store
from db.people import login_requests
from db.people.login_requests import LoginOutcome, LoginRequestView, WaitingLimit
from db.token_hashes import hash_token
from domain.people.tokens import AccessTokenView, TokenWanted, check_form, check_token, new_secret
from domain.requests.errors import InvalidRequest

PERIOD_S = 600.0
MOST_ASKED, MOST_WRONG = 20, 10
"""Requests of one address, and wrong codes of one person, within PERIOD_S."""
MOST_WAITING = 500
"""Requests that wait, of all addresses together; then the oldest of the address with most makes room."""


class TooManyRequests(TryLater):
    """So many requests came from this address, or wrong codes from this person, that they have to wait."""

    retry_after_s = PERIOD_S


class DeviceLogins:
    """The requests of command lines to be let in; safe to use from any thread."""

    def __init__(self, store: Store, known_addresses: KnownAddresses, now: Callable[[], float]) -> None:
        self._store, self._known_addresses, self._now = store, known_addresses, now
        self._asked, self._wrong = RateLimit(MOST_ASKED, PERIOD_S, now), RateLimit(MOST_WRONG, PERIOD_S, now)

    def ask(self, terms: TokenWanted, sender: str) -> tuple[LoginRequestView, str]:
        """Take a request; returns it and the secret that becomes the token. Raises InvalidRequest, TooManyRequests."""
        check_form(terms)
        if terms.bounds is not None:
            raise InvalidRequest("budget_s", "budget_s: a login has none; `rankzero token create` makes such a token.")
        if not self._asked.take(sender):
            raise TooManyRequests("Too many logins were requested from your address: wait ten minutes, then try again.")
        secret, now = new_secret(), self._now()
        limit = WaitingLimit(MOST_WAITING, self._known_addresses.addresses())
        return login_requests.ask(self._store, terms, hash_token(secret), sender, now, limit), secret

    def outcome(self, code: str, secret: str) -> tuple[LoginOutcome, AccessTokenView | None]:
        """The state of a request, and its token once it is allowed. Raises NoSuchRequest."""
        return login_requests.outcome(self._store, code, hash_token(secret), self._now())

    def waiting(self, code: str) -> LoginRequestView:
        """The request with this code, for the actor. Raises NoSuchRequest, TooManyRequests."""
        person = acting.rights().by or ""
        if not self._wrong.take(person):
            raise TooManyRequests("Too many wrong codes: wait ten minutes, then try again.")
        request = login_requests.waiting(self._store, code, self._now())
        self._wrong.give_back(person)
        return request

    def allow(self, code: str) -> AccessTokenView:
        """Let a command line in for the actor. Raises NoSuchRequest, TooManyRequests, Denied."""
        check_token(self.waiting(code).terms, acting.rights())
        return login_requests.allow(self._store, code, acting.rights().by or "", self._now())

    def refuse(self, code: str) -> None:
        """Refuse a request; a token refuses only what it may allow. Raises NoSuchRequest, TooManyRequests, Denied."""
        request, rights = self.waiting(code), acting.rights()
        if rights.via is not None:
            check_token(request.terms, rights)
        login_requests.refuse(self._store, code, rights.by or "", self._now())
