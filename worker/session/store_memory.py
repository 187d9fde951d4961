"""Remembers the store a node works for, to detect that an older copy has replaced it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from worker.node.state_files import write_whole
from worker.session.answers import DesiredState
from worker.session.client import Client


class StoreMemory:
    """The store's identity and the newest attempt it assigned to this node, stored in the identity file."""

    def __init__(self, client: Client, file: Path, identity: dict[str, Any]) -> None:
        self._client, self._file, self._identity = client, file, identity
        client.store = str(identity.get("store", ""))
        if client.store:
            self._announce()

    def registered(self) -> None:
        """Record a registration; attempts assigned by another store are forgotten."""
        if self._identity.get("store", "") != self._client.store:
            self._identity |= {"store": self._client.store, "newest_fence": 0, "newest": ""}
        self._announce()
        self._write()

    def accept(self, desired_state: DesiredState) -> bool:
        """Whether the desired state comes from this node's store; if so, remember its newest attempt."""
        if desired_state.store != self._client.store:
            return False
        newest = max(desired_state.assignments, key=lambda assignment: assignment.fence, default=None)
        if newest is not None and newest.store and newest.fence > self._fence:
            self._identity |= {"newest_fence": newest.fence, "newest": newest.label}
            self._announce()
            self._write()
        return True

    @property
    def _fence(self) -> int:
        fence = self._identity.get("newest_fence", 0)
        return fence if isinstance(fence, int) else 0

    def _announce(self) -> None:
        self._client.remember(self._fence, str(self._identity.get("newest", "")))

    def _write(self) -> None:
        write_whole(self._file, json.dumps(self._identity))
