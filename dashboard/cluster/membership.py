"""How machines become nodes: join tokens, and the address of this dashboard."""

from __future__ import annotations

import logging

from dashboard.clock import Clock
from dashboard.cluster.joining import Listening, outward_address
from dashboard.settings import Settings
from db.engine import Store
from db.nodes import join_tokens, node_reports
from domain.views import JoinTokenView

log = logging.getLogger("rankzero")


class Membership:
    """The part of a dashboard's state that concerns joining nodes."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self.settings, self.store, self.clock = settings, store, clock
        self.port = settings.port
        """The port that is actually listened on, once the server runs."""

    def end_unknown(self, node: str, run_id: str) -> str:
        """Have a node end a run that this store does not know; returns the node's id. Raises NoSuchNode, NoSuchRun."""
        with self.store.write() as session:
            node_id, name = node_reports.end_unknown(session, node, run_id)
        log.info("ending run %s on node %s: this store does not know it", run_id, name)
        return node_id

    def join_tokens(self) -> list[JoinTokenView]:
        """Every join token, newest first."""
        return join_tokens.every(self.store)

    def make_join_token(self, ttl_s: float | None = None, name: str = "") -> tuple[JoinTokenView, str]:
        """Make a join token with this lifetime (default: a day), and its secret. Raises InvalidRequest."""
        view, secret = join_tokens.make(self.store, ttl_s, name, self.clock())
        log.info("join token %s made, good for %.0f s", view.id, view.expires_at - view.created_at)
        return view, secret

    def listening(self) -> Listening:
        """The host and port that this dashboard listens on, and this machine's outward address."""
        return Listening(self.settings.host, self.port, outward_address())

    def revoke_join_token(self, token_id: str) -> JoinTokenView:
        """Revoke a join token; nodes that have joined with it stay. Raises NoSuchToken."""
        view = join_tokens.revoke(self.store, token_id, self.clock())
        log.info("join token %s revoked", view.id)
        return view
