"""Who may become a node: join tokens, and where nodes find this dashboard."""

from __future__ import annotations

import logging

from dashboard.clock import Clock
from dashboard.cluster.joining import Listening, outward_address
from dashboard.settings import Settings
from db.engine import Store
from db.reports import nodes
from db.requests import join_tokens
from domain.views import JoinTokenView

log = logging.getLogger("rankzero")


class Membership:
    """The part of a dashboard's state that is about nodes joining."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self.settings, self.store, self.clock = settings, store, clock
        self.port = settings.port
        """The one that is really listened on, once it is."""

    def end_unknown(self, node: str, run_id: str) -> str:
        """Have a node end what it trains of a run that this store does not know; returns the node's id.

        Raises db.requests.NoSuchNode, db.requests.NoSuchRun."""
        with self.store.write() as session:
            node_id, name = nodes.end_unknown(session, node, run_id)
        log.info("node %s is told to end run %s, which this store does not know", name, run_id)
        return node_id

    def join_tokens(self) -> list[JoinTokenView]:
        """Every token that was made for nodes to join with, the newest first."""
        return join_tokens.every(self.store)

    def make_join_token(self, ttl_s: float | None = None, name: str = "") -> tuple[JoinTokenView, str]:
        """A token good for so many seconds (default: a day), and its secret. Raises db.requests.Refused."""
        view, secret = join_tokens.make(self.store, ttl_s, name, self.clock())
        log.info("join token %s made, good for %.0f s", view.id, view.expires_at - view.created_at)
        return view, secret

    def listening(self) -> Listening:
        """Where this dashboard listens, for those who are to come to it."""
        return Listening(self.settings.host, self.port, outward_address())

    def revoke_join_token(self, token_id: str) -> JoinTokenView:
        """Let nobody join with it any more; who has joined stays. Raises db.join_tokens.NoSuchToken."""
        view = join_tokens.revoke(self.store, token_id, self.clock())
        log.info("join token %s revoked", view.id)
        return view
