"""The tool `cluster`: the nodes and what is free, the queue, and who uses what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.agents.answers import answer, picked
from dashboard.agents.tool import Arguments, Call, Cursor, Tool, cursors_of, offset_of
from domain.messages import State

OPEN = [state.value for state in State if not state.is_terminal]
MOST_QUEUED = 20
MOST_LIVE = 1000
QUEUED = ("id", "name", "by", "waiting_for", "expected_start_at", "nodes", "world_size")


class ClusterWanted(Arguments):
    """Where the list of nodes begins."""

    cursor: Cursor = ""


async def cluster(call: Call, arguments: ClusterWanted) -> str:
    """Say what is free, who uses the rest, what waits, and list the nodes."""
    start = offset_of(arguments.cursor)
    nodes = await call.api.ask("GET", "/api/nodes")
    live = await call.api.ask("GET", "/api/runs", state=OPEN, limit=MOST_LIVE)
    queue = [run for run in live if run["state"] == State.QUEUED]
    head = {
        "devices": sum(node["slots"] for node in nodes),
        "free": sum(node["free"] for node in nodes),
        "in_use": _users(nodes, live),
        "queued": len(queue),
        "queue": [picked(run, QUEUED) for run in reversed(queue[-MOST_QUEUED:])],
    }
    rows = [_node(node) for node in nodes][start:]
    return answer(head, arguments.limit, ("nodes", rows), cursors_of(start, rows))


def _users(nodes: Sequence[Mapping[str, Any]], live: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return how many devices each person's runs use; runs that are hidden have nobody's name."""
    people = {run["id"]: run["by"] for run in live}
    used = Counter(people.get(device["run_id"]) for node in nodes for device in node["devices"] if _is_used(device))
    return [picked({"by": by, "devices": count}, ("by", "devices")) for by, count in used.most_common(MOST_QUEUED)]


def _is_used(device: Mapping[str, Any]) -> bool:
    return device["run_id"] is not None or device["private"]


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    devices = node["devices"]
    used = Counter(device["run_id"] for device in devices if device["run_id"])
    first = picked(devices[0], ("kind", "name", "memory_bytes")) if devices else {}
    quarantine = (node["quarantine"] or {}).get("why")
    own = picked(node, ("name", "state", "slots", "free", "pool")) | {"device": first}
    runs = {"using": [{"run": run_id, "devices": count} for run_id, count in used.items()]} if used else {}
    return own | runs | ({"draining": True} if node["draining"] else {}) | picked({"why": quarantine}, ("why",))


TOOLS = (Tool("cluster", "Nodes and free devices, the queue, and who uses what.", ClusterWanted, cluster),)
