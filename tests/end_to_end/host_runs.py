"""What runs on several hosts stored, and whether it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.hosts import Host, Hosts

SCRIPT = Path(__file__).parent / "scripts" / "resumes.py"


def assert_the_curve_has_no_break(hosts: Hosts, run_id: str) -> None:
    """Every step once, each with the loss that a run without a break has."""
    points = hosts.get(f"/api/runs/{run_id}/metrics?name=train/loss")["train/loss"]
    assert [point[0] for point in points] == list(range(1, len(points) + 1))
    for step, loss, _ in points:
        assert loss == pytest.approx((1 - 2 * 0.001) ** (2 * (step - 1)), rel=1e-4)


def saved(hosts: Hosts, run_id: str) -> list[Any]:
    return [each for each in hosts.get(f"/api/runs/{run_id}/checkpoints") if each["complete"]]


def history(hosts: Hosts, run_id: str) -> list[str]:
    return [line["text"] for line in hosts.get(f"/api/runs/{run_id}/history")]


def hosts_of(hosts: Hosts, run_id: str, number: int) -> list[Host]:
    tasks = hosts.get(f"/api/runs/{run_id}/attempts")[number - 1]["tasks"]
    return [next(host for host in hosts.hosts if host.name == task["node"]) for task in tasks]
