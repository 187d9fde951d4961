"""The tokens with which nodes join, for those who may operate the installation."""

from __future__ import annotations

import logging
from collections.abc import Callable

from db import acting
from db.engine import Store
from db.nodes import join_tokens
from domain.people.roles import Action
from domain.views import JoinTokenView

log = logging.getLogger("rankzero")


class JoinTokens:
    """All join tokens but the server's own; safe to use from any thread."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store, self._now = store, now

    def every(self) -> list[JoinTokenView]:
        """Every join token, newest first. Raises Denied."""
        acting.rights().check(Action.OPERATE, None)
        return join_tokens.every(self._store)

    def make(
        self, ttl_s: float | None = None, name: str = "", most_uses: int | None = None
    ) -> tuple[JoinTokenView, str]:
        """Make a token valid for `ttl_s` seconds (default: a day), and its secret. Raises Denied, InvalidRequest."""
        acting.rights().check(Action.OPERATE, None)
        view, secret = join_tokens.make(self._store, ttl_s, name, self._now(), most_uses)
        log.info("join token %s made, good for %.0f s", view.id, view.expires_at - view.created_at)
        return view, secret

    def revoke(self, token_id: str) -> JoinTokenView:
        """Revoke a join token; nodes that have joined with it stay. Raises Denied, NoSuchToken."""
        acting.rights().check(Action.OPERATE, None)
        view = join_tokens.revoke(self._store, token_id, self._now())
        log.info("join token %s revoked", view.id)
        return view

    def used(self, token_id: str) -> None:
        """Note that a node has joined with it now."""
        join_tokens.used(self._store, token_id, self._now())
