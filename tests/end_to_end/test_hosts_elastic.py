"""Elastic runs on several hosts: they grow when a host joins and shrink when one drains, and the curve goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.host_runs import SCRIPT, assert_the_curve_has_no_break, history, saved
from tests.end_to_end.hosts import Hosts, why_not
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

AT_ANY_CHECKPOINT = {"RANKZERO_GROW_AFTER_S": "0"}


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Hosts]]:
    """For clusters that a test has started: nothing of them remains."""
    if reason := why_not():
        pytest.skip(reason)
    clusters: list[Hosts] = []
    yield clusters
    for cluster in clusters:
        cluster.clean_up()


def cluster_of(started: list[Hosts], folder: Path, count: int, joined: int, env: dict[str, str] | None = None) -> Hosts:
    """So many hosts, of which some have a worker."""
    hosts = Hosts(count, folder, env=AT_ANY_CHECKPOINT | (env or {}))
    started.append(hosts)
    hosts.boot()
    hosts.start_dashboard()
    for host in hosts.hosts[:joined]:
        hosts.start_worker(host)
    wait_for(lambda: len(hosts.get("/api/nodes")) == joined, "the first nodes", explain=hosts.tail)
    return hosts


@pytest.mark.long
def test_a_run_grows_when_a_host_joins(started: list[Hosts], tmp_path: Path) -> None:
    hosts, release = cluster_of(started, tmp_path, 2, joined=1), tmp_path / "told"
    run_id = launch(hosts, "1:2", release)
    states = trains_on(hosts, run_id, 1, nodes=1)
    assert accumulated(hosts, run_id) == {"2"}
    hosts.start_worker(hosts[1])
    states |= trains_on(hosts, run_id, 2, nodes=2)
    assert not states & {"stopped", "failed", "succeeded"}
    assert accumulated(hosts, run_id) == {"1"}
    assert any("to continue on 2 nodes: host1 is free" in line for line in history(hosts, run_id))
    ends_well(hosts, run_id, release, attempts=2)


@pytest.mark.long
def test_a_run_grows_and_shrinks_with_what_joins_and_drains(started: list[Hosts], tmp_path: Path) -> None:
    hosts, release = cluster_of(started, tmp_path, 3, joined=2), tmp_path / "told"
    run_id = launch(hosts, "2:3", release)
    trains_on(hosts, run_id, 1, nodes=2)
    hosts.start_worker(hosts[2])
    trains_on(hosts, run_id, 2, nodes=3)
    assert hosts.request("POST", "/api/nodes/host1/drain").status_code == 200
    trains_on(hosts, run_id, 3, nodes=2)
    tasks = hosts.get(f"/api/runs/{run_id}/attempts")[-1]["tasks"]
    assert [task["node"] for task in tasks] == ["host0", "host2"]
    assert any("to continue on 2 nodes: host1 drains" in line for line in history(hosts, run_id))
    ends_well(hosts, run_id, release, attempts=3)


@pytest.mark.long
def test_a_run_goes_on_without_a_lost_host_and_has_it_again_when_it_is_back(
    started: list[Hosts], tmp_path: Path
) -> None:
    """Without a restart being allowed: that nodes come and go is no failure of an elastic run."""
    soon_lost = {"RANKZERO_LOST_AFTER_S": "4", "RANKZERO_HEARTBEAT_S": "1"}
    hosts, release = cluster_of(started, tmp_path, 2, joined=2, env=soon_lost), tmp_path / "told"
    run_id = launch(hosts, "1:2", release, on_lost_node="end")
    trains_on(hosts, run_id, 1, nodes=2)
    hosts[1].cut()
    trains_on(hosts, run_id, 2, nodes=1)
    hosts[1].mend()
    trains_on(hosts, run_id, 3, nodes=2)
    release.touch()
    assert hosts.wait_state(run_id)["state"] == "succeeded", told_of(hosts, run_id)
    rows = hosts.get(f"/api/runs/{run_id}/attempts")
    assert [each["state"] for each in rows] == ["failed", "stopped", "succeeded"]
    assert rows[0]["reason"] == "node lost"
    assert_the_curve_has_no_break(hosts, run_id)
    assert hosts.left_of(run_id) == []


def launch(hosts: Hosts, nodes: str, release: Path, **spec: Any) -> str:
    """With a batch of 6 per rank on all its nodes, which fewer ranks make up by accumulation."""
    more = {"gpus_per_node": 1, "batch_size": 6, "lr": 0.001, "stop_grace_s": 5} | spec
    return hosts.launch(SCRIPT, nodes=nodes, args=[str(release), "0", "{batch_size}", "{accumulate}", "{lr}"], **more)


def trains_on(hosts: Hosts, run_id: str, attempt: int, nodes: int) -> set[str]:
    """Wait until an attempt steps on so many nodes, with a checkpoint behind it; the states seen meanwhile."""
    seen: set[str] = set()

    def steps() -> bool:
        run = hosts.run(run_id)
        seen.add(run["state"])
        return (run["attempt"], run["state"], run["nodes"]) == (attempt, "running", nodes)

    wait_for(steps, f"attempt {attempt} on {nodes} nodes", 120, explain=lambda: told_of(hosts, run_id))
    began_at = hosts.run(run_id)["step"] or 0
    hosts.wait_step(run_id, began_at + 3)
    wait_for(lambda: saved(hosts, run_id), "a checkpoint")
    return seen


def accumulated(hosts: Hosts, run_id: str) -> set[str]:
    """What the nodes of the latest attempt really hand to the script."""
    tasks = hosts.get(f"/api/runs/{run_id}/attempts")[-1]["tasks"]
    return {task["env"]["RANKZERO_ACCUMULATE"] for task in tasks}


def ends_well(hosts: Hosts, run_id: str, release: Path, attempts: int) -> None:
    release.touch()
    ended = hosts.wait_state(run_id)
    assert (ended["state"], ended["attempt"]) == ("succeeded", attempts), told_of(hosts, run_id)
    assert ended["lr"] == 0.001
    rows: list[dict[str, Any]] = hosts.get(f"/api/runs/{run_id}/attempts")
    assert [each["state"] for each in rows] == ["stopped"] * (attempts - 1) + ["succeeded"]
    assert all(each["message"].startswith("Ended at checkpoint ") for each in rows[:-1])
    assert all(each["resumed_from"] for each in rows[1:])
    assert_the_curve_has_no_break(hosts, run_id)
    assert hosts.left_of(run_id) == []


def told_of(hosts: Hosts, run_id: str) -> str:
    return "\n".join(history(hosts, run_id)) + hosts.tail()
