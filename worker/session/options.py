"""The options of a worker and of a gateway, and the join token, which is never one of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
