"""Tracks a node's slowly changing facts: the address others use, and its clock's offset to the server's."""

from __future__ import annotations

import contextlib

from domain.messages import NodeLoad
from worker.launch.preparation import LocalNode
from worker.session.client import Client
from worker.session.clock import Offset, offset
from worker.session.failures import RequestRefused, ServerAway

FIRST_REFRESH_S = 1.0
"""The first pause: much changes while a cluster starts. Later pauses are twice as long each time."""
REFRESH_EVERY_S = 30.0
"""The longest pause; looking up the connections to a server on this machine takes tens of milliseconds."""


class NodeAddress:
    """The address and clock offset, refreshed in a thread of its own and sent with every load sample."""

    def __init__(self, node: LocalNode, client: Client) -> None:
        self._node, self._client = node, client
        self._current = node
        self._clock: Offset | None = None

    def refresh(self) -> None:
        """Look both up; waits for the server's answer."""
        self._current = self._node.as_seen_by_others()
        with contextlib.suppress(ServerAway, RequestRefused):
            self._clock = offset(self._client.time)

    def add_to(self, load: NodeLoad) -> NodeLoad:
        """Add the last known address and clock offset to a load sample."""
        load.address, load.interface = self._current.address, self._current.interface
        if self._clock is not None:
            load.clock_offset_s, load.clock_error_s = self._clock
        return load
