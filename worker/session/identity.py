"""The identity of a node: its name and tokens, kept in a data directory that only one process may use."""

from __future__ import annotations

import os
from pathlib import Path

from worker.node import processes
from worker.node.locks import take_lock
from worker.node.state_files import read_object
from worker.session.options import CannotRun, NodeOptions, join_token


class NodeIdentity:
    """The stored identity of a worker or gateway. Locks the data directory; raises CannotRun."""

    def __init__(self, options: NodeOptions, own_name: str) -> None:
        self._lock = lock_data(options.data)
        lock = os.fstat(self._lock)
        self.directory = f"{processes.boot_id()}:{lock.st_dev}:{lock.st_ino}"
        """Identifies the data directory: unchanged when the program restarts, different for a copy of the directory."""
        self.file = options.data / "node" / "node.json"
        self.values = read_object(self.file)
        self.join_token = join_token(options, is_needed=not self.token)
        self.name = str(options.name or self.values.get("name") or own_name)

    @property
    def token(self) -> str:
        """The node's own token; empty before it has joined."""
        return str(self.values.get("token", ""))


def lock_data(data: Path) -> int:
    """Lock the data directory while this process lives, because two workers would start everything twice.

    Returns the open file descriptor. Raises CannotRun."""
    try:
        (data / "node").mkdir(parents=True, exist_ok=True, mode=0o700)
        return take_lock(data / "node" / "lock")
    except BlockingIOError:
        raise CannotRun(f"another worker already uses {data}. Stop it, or give this one a different --data.") from None
    except OSError as error:
        raise CannotRun(f"{data} cannot be written: {error.strerror}. Choose another --data.") from error
