"""The version of what workers and dashboards tell each other: both name theirs; pure."""

from __future__ import annotations

PROTOCOL = 2
"""Raised with each change that the other side must understand; what it may ignore needs no new number."""
FIRST = 1
"""Spoken by workers and dashboards that name none."""


def is_spoken(protocol: int | None) -> bool:
    """Whether a node whose worker speaks this may be given new runs."""
    return (protocol or FIRST) == PROTOCOL


def is_older(protocol: int | None) -> bool:
    """Whether the worker is older than this dashboard."""
    return (protocol or FIRST) < PROTOCOL


def advice(protocol: int | None, worker_version: str | None, own_version: str) -> str | None:
    """What is to be upgraded so that a node gets runs, and how; None where nothing is."""
    if is_spoken(protocol):
        return None
    has = f"Rankzero {worker_version}, protocol" if worker_version else "protocol"
    if is_older(protocol):
        return (
            f"Upgrade its worker: it speaks {has} {protocol or FIRST}, this dashboard {PROTOCOL}, so nothing new "
            f"starts there; what trains there goes on. On that machine: pip install rankzero=={own_version} (or "
            "as it was installed), then sudo systemctl restart rankzero-worker, or start rankzero worker again."
        )
    return (
        f"Upgrade this dashboard: the node's worker is newer ({has} {protocol}, here {PROTOCOL}), so nothing new "
        "starts there; what trains there goes on."
    )


def warning(server_protocol: int) -> str | None:
    """What a worker says of a dashboard that speaks another protocol."""
    if server_protocol == PROTOCOL:
        return None
    which, word = ("the dashboard", "older") if server_protocol < PROTOCOL else ("this worker", "newer")
    return (
        f"upgrade {which}: the dashboard is {word} than this worker (protocol {server_protocol}, here {PROTOCOL}). "
        "Nothing new is started on this node until then; what trains goes on."
    )
