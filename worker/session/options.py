"""The options of a worker and of a gateway, and the identity that its data directory keeps: name and tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from worker.node import processes
from worker.node.processes import take_lock
from worker.node.run_as import RunAs
from worker.node.state_files import read_object

NO_TOKEN = (
    "a token is needed to join: set RANKZERO_TOKEN or --token-file to the token that `rankzero token "
    "--join --expires 24h` prints on the server."
)


class CannotRun(Exception):
    """This worker cannot run; the message is one sentence."""


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The options that workers and gateways share."""

    server: str
    """The dashboard's URL."""
    data: Path
    """The absolute path of the data directory."""
    name: str | None = None
    python: str | None = None
    """The interpreter for runs that name none; None for this program's own."""
    labels: Mapping[str, str] = field(default_factory=dict)
    token_file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class WorkerOptions(NodeOptions):
    """The options of `rankzero worker`."""

    slots: int | None = None
    """Devices to offer; None for all GPUs, or all cores where there are none."""
    address: str | None = None
    """The address for other nodes; None for the one at which the server sees this node."""
    stop_runs: bool = False
    """End this node's runs on SIGTERM."""
    warm_start: bool = True
    """Import torch ahead of the next launch."""
    run_as: RunAs = field(default_factory=RunAs)
    """The accounts that trainings run under."""
    keep_attempts_s: float | None = None
    """How long the folders of ended attempts are kept; None: for ever."""
    only_attempt: int | None = None
    """In a Slurm job: the fencing token of the only attempt to serve."""


@dataclass(frozen=True, kw_only=True)
class GatewayOptions(NodeOptions):
    """The options of `rankzero gateway`."""

    job_data: Path | None = None
    """Where jobs keep their data, as their nodes see it; None for a folder in the data directory."""
    poll_s: float = 5.0
    """Seconds between two calls of squeue."""


def join_token(options: NodeOptions, is_needed: bool) -> str:
    """The join token from the named file, the environment, or a data directory shared with the server; else empty.

    A node that has joined has a token of its own and no longer needs this one. Raises CannotRun."""
    if options.token_file is not None:
        try:
            return options.token_file.read_text().strip()
        except OSError as error:
            if is_needed:
                raise CannotRun(f"{options.token_file} cannot be read: {error.strerror}.") from error
            return ""
    if token := os.environ.get("RANKZERO_TOKEN", "").strip():
        return token
    try:
        return (options.data / "join-token").read_text().strip()
    except OSError:
        if is_needed:
            raise CannotRun(NO_TOKEN) from None
        return ""


# The identity of a node: its name and tokens, kept in a data directory that only one process may use.


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
