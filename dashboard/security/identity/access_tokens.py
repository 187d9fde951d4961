"""The access tokens of this dashboard: whose each is, what it may, and when it was used; revoked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dashboard.security.identity.fresh_answers import FreshAnswers
from dashboard.security.identity.identities import Identities
from dashboard.security.identity.last_uses import LastUses
from dashboard.security.identity.open_sockets import OpenSockets
from db import acting
from db.engine import Store
from db.nodes.join_tokens import TurnedAway
from db.people import access_tokens
from db.people.access_tokens import NoSuchAccessToken, StoredToken
from db.token_hashes import hash_token
from domain.people.rights import Denied, Rights
from domain.people.roles import Action, Scope
from domain.people.tokens import AccessTokenView, TokenWanted, check_token, is_secret, new_secret
from domain.text.formats import clock_minute

HIDDEN = "a private project"


@dataclass(frozen=True)
class TokenHolder:
    """Who sent a token: what it may do, and the name under which its WebSockets are kept."""

    rights: Rights
    name: str


class AccessTokens:
    """All access tokens; safe to use from any thread."""

    def __init__(self, store: Store, identities: Identities, now: Callable[[], float], visits: LastUses) -> None:
        self._store, self._identities, self._now = store, identities, now
        self.sockets = OpenSockets("the token has ended")
        self._stored = FreshAnswers(
            lambda secret_hash: access_tokens.by_hash(store, secret_hash), now, keeps_none=False
        )
        self._visits, self._uses = visits, LastUses(lambda uses: access_tokens.used(store, uses), now)

    def judge(self, secret: bytes) -> TokenHolder | TurnedAway | None:
        """The holder of this token, the reason why it is refused, or None where it never was a token."""
        if not is_secret(secret):
            return None
        return self.with_hash(hash_token(secret.decode()))

    def with_hash(self, secret_hash: str) -> TokenHolder | TurnedAway | None:
        """Judge a token by the hash of its secret, as `judge` does by the secret."""
        if (token := self._stored.answer(secret_hash)) is None:
            return None
        rights = self._rights(token)
        if isinstance(rights, TurnedAway):
            return rights
        self._uses.note(token.id)
        return TokenHolder(rights, secret_hash)

    def make(self, terms: TokenWanted) -> tuple[AccessTokenView, str]:
        """Make a token of the actor; returns it and its secret, kept nowhere. Raises InvalidRequest, Denied."""
        rights, secret = acting.rights(), new_secret()
        check_token(terms, rights)
        return access_tokens.make(self._store, str(rights.by), terms, hash_token(secret), self._now()), secret

    def own(self) -> list[AccessTokenView]:
        """The tokens of the actor, newest first; with a token of one project only those of this project."""
        rights = acting.rights()
        return [one for one in self._listed(rights.by or "") if rights.only_project in (None, one.project)]

    def bounds_of(self, rights: Rights) -> dict[str, object]:
        """The bounds of the token that speaks for a person, and what its runs have taken of its budget."""
        own = self._listed(rights.by or "") if rights.token_id else []
        budget = next((one.budget for one in own if f"token {one.name}" == rights.via), None)
        return {"name": rights.via, "scope": rights.scope, "project": rights.only_project, "budget": budget}

    def all(self) -> list[AccessTokenView]:
        """The tokens of everybody, newest first; projects that are hidden have no name. Raises Denied."""
        rights = acting.rights()
        rights.check(Action.OPERATE, None)
        return [
            one if one.project is None or rights.sees(one.project) else replace(one, project=HIDDEN)
            for one in self._listed(None)
        ]

    def revoke(self, name: str, user: str | None = None) -> None:
        """Revoke a token of the actor, or of `user`, and close its WebSockets. Raises NoSuchAccessToken, Denied."""
        rights = acting.rights()
        if user is not None and user != rights.by:
            rights.check(Action.OPERATE, None)
        elif rights.scope is not Scope.ADMIN and rights.via != f"token {name}":
            raise Denied(f"The scope of {rights.via} is {rights.scope}: it may only revoke itself.")
        elif name not in {one.name for one in self.own()}:
            raise NoSuchAccessToken(f"There is no valid token {name!r} of {rights.by}.")
        self._forget(access_tokens.revoke(self._store, user or rights.by or "", name, self._now()))

    def names(self, user: str) -> list[str]:
        """The names of a person's valid tokens."""
        now = self._now()
        return [one.name for one in self._listed(user) if one.expires_at is None or one.expires_at > now]

    def forget(self, hashes: Iterable[str]) -> None:
        """Refuse tokens from now on that were revoked in the store, and close their WebSockets."""
        for secret_hash in hashes:
            self._forget(secret_hash)

    def close_ended(self) -> None:
        """Close the WebSockets of tokens that have expired, that another dashboard revoked, or whose person left."""
        for name in self.sockets.names():
            token = self._stored.answer(name)
            if token is None or not isinstance(self._rights(token), Rights):
                self.sockets.close(name)

    def write_down(self, at_once: bool = False) -> None:
        """Store when tokens were used last and people seen, at most once a minute unless it must be `at_once`."""
        self._uses.write_down(at_once)
        self._visits.write_down(at_once)

    def _listed(self, user: str | None) -> list[AccessTokenView]:
        self.write_down(at_once=True)
        return access_tokens.every(self._store, user, self._now())

    def _rights(self, token: StoredToken) -> Rights | TurnedAway:
        if token.revoked_at is not None:
            return TurnedAway(f"The token {token.name} was revoked at {clock_minute(token.revoked_at)}.", is_node=False)
        if token.expires_at is not None and self._now() >= token.expires_at:
            return TurnedAway(f"The token {token.name} expired at {clock_minute(token.expires_at)}.", is_node=False)
        person = self._identities.rights(token.user)
        if person is None:
            return TurnedAway(f"{token.user}, who owns this token, no longer has an account here.", is_node=False)
        via, token_id = f"token {token.name}", token.id if token.has_budget else None
        return replace(person, via=via, scope=token.scope, only_project=token.project, token_id=token_id)

    def _forget(self, secret_hash: str) -> None:
        self._stored.forget()
        self.sockets.close(secret_hash)
