"""What a node remembers of the store it works for: enough to notice that an older copy has taken its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from worker.node.state_files import write_whole
from worker.session.answers import Wishes
from worker.session.client import Client


class StoreMemory:
    """Kept in the node's identity file: the store's identity, and the newest attempt that it gave this node."""

    def __init__(self, client: Client, file: Path, identity: dict[str, Any]) -> None:
        self._client, self._file, self._identity = client, file, identity
        client.store = str(identity.get("store", ""))
        if client.store:
            self._say()

    def registered(self) -> None:
        """The server took this node in; what another store gave it says nothing of this one."""
        if self._identity.get("store", "") != self._client.store:
            self._identity |= {"store": self._client.store, "newest_fence": 0, "newest": ""}
        self._say()
        self._write()

    def is_of_our_store(self, wishes: Wishes) -> bool:
        """Whether the list comes from the store that this node registered with; what is new in it is remembered."""
        if wishes.store != self._client.store:
            return False
        newest = max(wishes.assignments, key=lambda one: one.fence, default=None)
        if newest is not None and newest.store and newest.fence > self._fence:
            self._identity |= {"newest_fence": newest.fence, "newest": newest.label}
            self._say()
            self._write()
        return True

    @property
    def _fence(self) -> int:
        fence = self._identity.get("newest_fence", 0)
        return fence if isinstance(fence, int) else 0

    def _say(self) -> None:
        self._client.remember(self._fence, str(self._identity.get("newest", "")))

    def _write(self) -> None:
        write_whole(self._file, json.dumps(self._identity))
