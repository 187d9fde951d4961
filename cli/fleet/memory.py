"""The host by which each node was added, in the person's own file: it stays on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cli.fleet.host_list import DEFAULT_FOLDER, Destination, Machine, parse
from dashboard.private_files import make_private_directory, write_private


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
        return {node_id: _machine(entry) for node_id, entry in self._read().items()}

    def of(self, node_id: str, name: str) -> Machine:
        """Return how a node is reached; one that was added elsewhere by its name."""
        return self.all().get(node_id) or Machine(parse(name))

    def folder_of(self, host: Destination) -> str:
        """Return the folder in which the last node of this host was installed."""
        folders = [machine.folder for machine in self.all().values() if machine.host == host]
        return folders[-1] if folders else DEFAULT_FOLDER

    def id_of(self, name: str) -> str:
        """Return the id of the node that was added last under a name; empty where none was."""
        return next((node_id for node_id, entry in reversed(self._read().items()) if entry.get("name") == name), "")

    def remember(self, nodes: dict[str, tuple[str, Machine]]) -> None:
        """Add nodes with their names, or how they are reached now. Raises OSError."""
        added: dict[str, dict[str, Any]] = {}
        for node_id, (name, one) in nodes.items():
            host = {"host": one.host.name, "user": one.host.user, "port": one.host.port}
            added[node_id] = {"name": name, **host, "jump": one.jump, "folder": one.folder}
        self._write(self._read() | added)

    def forget(self, node_id: str) -> None:
        """Remove a node. Raises OSError."""
        self._write({other_id: entry for other_id, entry in self._read().items() if other_id != node_id})

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            entries = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        documents = entries if isinstance(entries, dict) else {}
        return {key: entry for key, entry in documents.items() if isinstance(entry, dict) and "host" in entry}

    def _write(self, entries: dict[str, dict[str, Any]]) -> None:
        make_private_directory(self._path.parent)
        write_private(self._path, json.dumps(entries, indent=1))


def _machine(entry: dict[str, Any]) -> Machine:
    host = Destination(str(entry["host"]), entry.get("user"), entry.get("port"))
    return Machine(host, entry.get("jump"), str(entry.get("folder") or DEFAULT_FOLDER))
