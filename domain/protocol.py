"""The protocol version of workers and dashboards: each names its own, and learns who must be upgraded. Pure."""

from __future__ import annotations

PROTOCOL = 4
"""Incremented with each change that the other side must understand, a spec's changed default among them, not with
those it may ignore."""
FIRST = 1
"""The version of workers and dashboards that do not name one."""


def is_spoken(protocol: int | None) -> bool:
    """Whether a node whose worker speaks this version may be given new runs."""
    return (protocol or FIRST) == PROTOCOL


def is_older(protocol: int | None) -> bool:
    """Whether the worker is older than this dashboard."""
    return (protocol or FIRST) < PROTOCOL


def advice(protocol: int | None, worker_version: str | None, own_version: str) -> str | None:
    """Which side to upgrade before a node gets runs, and how; None when the versions match."""
    if is_spoken(protocol):
        return None
    has = f"Rankzero {worker_version}, protocol" if worker_version else "protocol"
    if is_older(protocol):
        return (
            f"Upgrade its worker: it uses {has} {protocol or FIRST}, this dashboard {PROTOCOL}, so nothing new "
            f"starts there; running jobs continue. On that machine: pip install rankzero=={own_version} (or "
            "as it was installed), then sudo systemctl restart rankzero-worker, or start rankzero worker again."
        )
    return (
        f"Upgrade this dashboard: the node's worker is newer ({has} {protocol}, here {PROTOCOL}), so nothing new "
        "starts there; running jobs continue."
    )


def warning(server_protocol: int) -> str | None:
    """The worker's log message about a dashboard with another protocol version; None when the versions match."""
    if server_protocol == PROTOCOL:
        return None
    outdated, relation = ("the dashboard", "older") if server_protocol < PROTOCOL else ("this worker", "newer")
    return (
        f"upgrade {outdated}: the dashboard is {relation} than this worker (protocol {server_protocol}, here "
        f"{PROTOCOL}). Nothing new is started on this node until then; running jobs continue."
    )
