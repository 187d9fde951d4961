"""By which host each node was added, remembered in a file of the person's own: the dashboard is not told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cli.fleet.host_list import DEFAULT_FOLDER, Destination, Machine, parse


class Memory:
    """The nodes that were added from here, by their ids."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of_person(cls) -> Memory:
        """The one in the platform's folder for state."""
        from platformdirs import user_state_path

        return cls(user_state_path("rankzero", appauthor=False) / "nodes.json")

    def all(self) -> dict[str, Machine]:
        """Return every node's host by the node's id; empty where the file is missing or unreadable."""
        try:
            entries: dict[str, dict[str, Any]] = json.loads(self._path.read_text())
            return {node_id: _machine(entry) for node_id, entry in entries.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def of(self, node_id: str, name: str) -> Machine:
        """Return how a node is reached; one that was added elsewhere by its name."""
        return self.all().get(node_id) or Machine(parse(name))

    def remember(self, nodes: dict[str, Machine]) -> None:
        """Add nodes, or how they are reached now. Raises OSError."""
        self._write(self.all() | nodes)

    def forget(self, node_id: str) -> None:
        """Remove a node. Raises OSError."""
        self._write({known: entry for known, entry in self.all().items() if known != node_id})

    def _write(self, nodes: dict[str, Machine]) -> None:
        entries = {
            node_id: {"host": e.host.name, "user": e.host.user, "port": e.host.port, "jump": e.jump, "folder": e.folder}
            for node_id, e in nodes.items()
        }
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        new.write_text(json.dumps(entries, indent=1))
        new.replace(self._path)


def _machine(entry: dict[str, Any]) -> Machine:
    host = Destination(str(entry["host"]), entry.get("user"), entry.get("port"))
    return Machine(host, entry.get("jump"), str(entry.get("folder") or DEFAULT_FOLDER))
