"""Numbers of any size in what workers report: refused or kept, and nobody's page breaks afterwards."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx2

from domain.points import PackedPoints
from tests.dashboard.running import FakeNode, Running, bundle_of
from worker.session.client import TaskRef

HOSTILE = (
    1e300, -1e300, 5e-324, 1e18, -1e18, float("nan"), float("-inf"), 10**400, 2**63, 2**63 - 1, -(2**63), 10**15, -1,
    0, "1e999", [],
)  # fmt: skip
NOW = time.time()
DEVICE = {"id": "cpu:0", "kind": "cpu", "name": "slot", "memory_bytes": 1}
HELD = {
    "run_id": "aaaaaaaaaa",
    "attempt": 1,
    "fence": 999,
    "node_rank": 0,
    "uid": "u",
    "store": "s",
    "devices": [],
}
REACHED = {"node_rank": 0, "address": "10.0.0.1", "port": 1, "took_s": 0.1}
CHECK = {
    "address": "10.0.0.1", "port": 1, "disk_free_bytes": 1, "clock_offset_s": 0.1, "clock_error_s": 0.1,
    "reached": [REACHED],
}  # fmt: skip
MEMORY = {
    "rank": 0, "device": 0, "at": NOW, "step": 1, "batch_size": 8, "requested_bytes": 9, "free_bytes": 1,
    "total_bytes": 10, "reserved_bytes": 5, "allocated_bytes": 4,
    "lines": [{"bytes": 1, "count": 1, "largest_bytes": 1, "line": 3, "file": "a.py"}],
}  # fmt: skip
ERROR = {"rank": 0, "node_rank": 0, "exit_code": 1, "line": 3, "at": NOW, "memory": MEMORY, "file": "a.py"}
FETCH = {"name": "c", "done_bytes": 1, "size_bytes": 2}
PHASE = {"phase": "started", "at": NOW, "began_at": NOW - 1}
GPU = {
    "id": "g", "utilisation_percent": 1, "memory_used_bytes": 1, "temperature_c": 1, "power_w": 1.0, "foreign": False,
}  # fmt: skip
CALL = {
    "group": "0",
    "sequence": 7,
    "operation": "all_reduce",
    "sizes": [[3, 2]],
    "dtypes": ["Float"],
    "called_at": NOW,
}
RANK = {"rank": 0, "world_size": 1, "at": NOW, "calls": [CALL], "groups": {"0": [0]}}
OPERATOR = {"name": "mm", "calls": 1, "self_s": 0.1, "total_s": 0.1}
GAPS = {"count": 1, "total_s": 0.1, "longest_s": 0.1}
TIMES = {
    "busy_share": 0.5, "communication_s": 0.1, "exposed_communication_s": 0.1, "gaps": GAPS, "kernels": [OPERATOR],
}  # fmt: skip
OVERVIEW = {
    "steps": 3, "seconds": 1.0, "data_s": 0.1, "communication_s": 0.1, "exposed_communication_s": 0.1, "gaps": GAPS,
    "operators": [OPERATOR], "device": TIMES,
}  # fmt: skip
BODIES: dict[str, dict[str, Any]] = {
    "report": {
        "state": "running", "pid": 1, "master_port": 1, "exit_code": 1, "error": ERROR, "preflight": CHECK,
        "fetching": FETCH, "timeline": [PHASE], "interpreter": {"python": "3.12", "cuda": 12},
    },
    "findings": {"findings": [{"kind": "hung", "evidence": "x"}]},
    "stacks": {"requested_at": NOW, "at": NOW, "ranks": {"0": [{"file": "a.py", "line": 1, "function": "f"}]}},
    "profiles": {
        "profile": "aaaaaaaaaa", "rank": 0, "state": "recorded", "size_bytes": 1, "step_s_before": 0.1,
        "overview": OVERVIEW, "flame": [[0, "main", 1.0]],
    },
    "collectives": {"is_stalled": True, "ranks": [RANK, RANK | {"rank": 1, "calls": [CALL | {"operation": "x"}]}]},
    "checkpoints": {"path": "work/a.pt", "step": 1, "size_bytes": 3, "sha256": "0" * 64, "written_at": NOW},
}  # fmt: skip
BATCH = {"path": "work/e", "generation": 0, "start": 0, "end": 10, "counts": {"train/loss": 2}}
POINTS = [[1, 2.5, NOW], [2, 2.0, NOW + 1]]
LOAD = {
    "cpu_percent": 1.0, "memory_used_bytes": 1, "memory_total_bytes": 2, "disk_free_bytes": 1, "disk_total_bytes": 2,
    "gpus": [GPU], "clock_offset_s": 0.1, "clock_error_s": 0.1, "held": [HELD],
}  # fmt: skip
NODE = {
    "name": "n", "instance_id": "i", "hostname": "h", "address": "10.0.0.2", "devices": [DEVICE], "held": [HELD],
    "info": {"cores": 2, "memory_bytes": 1, "clock_offset_s": 0.1, "clock_error_s": 0.1, "x": [{"y": 1}]},
}  # fmt: skip
SHOWN_IN = {
    "report": ("runs/{run}", "runs/{run}/timeline"),
    "findings": ("runs/{run}/findings",),
    "stacks": ("runs/{run}/stacks",),
    "profiles": ("runs/{run}/profiles",),
    "collectives": ("runs/{run}/collectives",),
    "checkpoints": ("runs/{run}/checkpoints",),
}
READ = (
    "runs/{run}", "runs", "nodes", "runs/{run}/metrics?source=all", "runs/{run}/history", "runs/{run}/phases",
    "runs/{run}/ranks", "export?runs={run}&format=html", "export?runs={run}&format=csv", "overview", "cluster",
    "metrics",
)  # fmt: skip


def mutations(body: Any) -> Iterator[Any]:
    """The body with each of its numbers replaced by each hostile value."""
    for path in numbers(body):
        for value in HOSTILE:
            changed = copy.deepcopy(body)
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            yield changed


def numbers(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(body, int | float):
        yield path
    elif isinstance(body, dict | list):
        for key, value in body.items() if isinstance(body, dict) else enumerate(body):
            yield from numbers(value, (*path, key))


class Reporter:
    """A node's token, and every answer that was a server's error."""

    def __init__(self, dashboard: Running, node: FakeNode) -> None:
        self.dashboard = dashboard
        self.broken: list[str] = []
        self.token(node.client.token or "")

    def token(self, token: str) -> None:
        """Use another token."""
        self.http = self.dashboard.anonymous(Authorization=f"Bearer {token}")

    def read(self, paths: tuple[str, ...], run_id: str) -> None:
        """Look at what is shown of a run and of the nodes."""
        for path in paths:
            address = ("/" if path == "metrics" else "/api/") + path.format(run=run_id)
            answer = self.dashboard.http.get(address)
            if not answer.is_success:
                self.broken.append(f"{address} {answer.status_code} {answer.text[:300]}")

    def send(self, path: str, content: bytes | str, method: str = "POST") -> httpx2.Response:
        headers = {"Content-Type": "application/json"}
        answer = self.http.request(method, f"/api/worker/{path}", content=content, headers=headers)
        if answer.status_code >= 500 and "This store is older" not in answer.text:
            self.broken.append(f"{path} {answer.status_code} {content[:2000]!r}")
        return answer

    def takes(self, task: TaskRef, batch: Any, points: Any) -> bool:
        """Send a batch of points, or what stands in its place; say whether it is stored."""
        try:
            columns = PackedPoints.of(points).chunk()
        except (OverflowError, TypeError, ValueError):  # no column can hold it
            return False
        sent = self.send("pieces", bundle_of(task, json.dumps(batch).encode() + b"\n" + columns))
        (answer,) = sent.json()["answers"]
        if answer["status"] >= 500:
            self.broken.append(f"points {answer} {batch!r} {points!r}"[:2000])
        return bool(answer["status"] == 200)


def test_no_number_breaks_a_route_of_workers_or_a_page_that_shows_it(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(gpus_per_node=2)
    task, reporter = node.task(), Reporter(dashboard, node)
    address = f"attempts/{task.fence}/tasks/{task.node_rank}"
    for name, body in BODIES.items():
        assert reporter.send(f"{address}/{name}", json.dumps(body)).is_success or name == "profiles", name
        for changed in mutations(body):
            if reporter.send(f"{address}/{name}", json.dumps(changed)).is_success:
                reporter.read(SHOWN_IN[name], run_id)
    assert reporter.takes(task, BATCH, POINTS), "points"
    following = BATCH | {"start": 10}
    odd_points = [(following, changed) for changed in mutations(POINTS)]
    for batch, points in [*odd_points, *((changed, POINTS) for changed in mutations(following))]:
        if reporter.takes(task, batch, points):
            reporter.read(("runs/{run}", "runs/{run}/metrics"), run_id)
    for changed in [LOAD, *mutations(LOAD)]:
        if reporter.send("load", json.dumps(changed)).is_success:
            reporter.read(("nodes", "cluster", "metrics"), run_id)
    reporter.read(READ, run_id)
    assert reporter.broken == []


def test_no_number_in_an_address_or_a_registration_breaks_anything(dashboard: Running, node: FakeNode) -> None:
    task, reporter = dashboard.launch() and node.task(), Reporter(dashboard, node)
    for number in (2**31, 2**63, 10**30, -1):
        for path in (f"attempts/{number}/tasks/0", f"attempts/{task.fence}/tasks/{number}"):
            reporter.send(f"{path}/report", json.dumps({"state": "running"}))
            reporter.send(f"{path}/files?path=a", b"", "GET")
        for path in (f"checks/{number}", f"jobs/{number}", f"checkpoints/{number}/complete"):
            reporter.send(path, json.dumps({"stage": 0, "state": "RUNNING", "starts_at": 1e300}))
    reporter.token(dashboard.join_token)
    for number, changed in enumerate(mutations(NODE)):
        reporter.send("register", json.dumps(changed | {"name": f"n{number}"}))
    reporter.read(("nodes", "cluster", "metrics"), "")
    assert reporter.broken == []
