"""What of a node changes slowly: where others reach it, and how far its clock is from the server's."""

from __future__ import annotations

import contextlib

from domain.messages import NodeLoad
from worker.launch.preparation import LocalNode
from worker.node.clock import Offset, offset
from worker.session.client import Client
from worker.session.failures import RequestRefused, ServerAway

FIRST_LOOKS_S = 1.0
"""While a cluster starts much changes; then twice as long each time."""
LOOK_EVERY_S = 30.0
"""To find out where others are connected to a server here takes tens of milliseconds."""


class Whereabouts:
    """Looked up now and then in a thread of its own, and sent with every sample of the load."""

    def __init__(self, node: LocalNode, client: Client) -> None:
        self._node, self._client = node, client
        self._now = node
        self._clock: Offset | None = None

    def look(self) -> None:
        """May take as long as the server does."""
        self._now = self._node.among_others()
        with contextlib.suppress(ServerAway, RequestRefused):
            self._clock = offset(self._client.time)

    def add_to(self, load: NodeLoad) -> NodeLoad:
        """The sample, with what was found last."""
        load.address, load.interface = self._now.address, self._now.interface
        if self._clock is not None:
            load.clock_offset_s, load.clock_error_s = self._clock
        return load
