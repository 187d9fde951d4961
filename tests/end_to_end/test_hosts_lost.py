"""Hosts that are cut off for good: the rest is ended, the run goes on elsewhere, and who comes back late is fenced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.hosts import Host, Hosts, why_not
from tests.end_to_end.product import wait_for

SCRIPT = Path(__file__).parent / "scripts" / "resumes.py"
TWO_NODES = {"nodes": 2, "gpus_per_node": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where hosts may be made, on a machine that can."""
    if reason := why_not():
        pytest.skip(reason)
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture
def started(folder: Path) -> Iterator[list[Hosts]]:
    """For clusters that a test has started: nothing of them remains."""
    clusters: list[Hosts] = []
    yield clusters
    for cluster in clusters:
        cluster.clean_up()


def cluster_of(started: list[Hosts], folder: Path, count: int, **env: str) -> Hosts:
    hosts = Hosts(count, folder, env=env)
    started.append(hosts)
    hosts.start()
    return hosts


@pytest.mark.long
def test_a_host_that_is_gone_for_good_ends_the_run_which_goes_on_elsewhere(
    started: list[Hosts], folder: Path, tmp_path: Path
) -> None:
    """With the limits as they are by default."""
    hosts, told = cluster_of(started, folder, 3), tmp_path / "told"
    run_id = hosts.launch(SCRIPT, args=[str(told)], max_restarts=1, **TWO_NODES)
    goes_on_elsewhere(hosts, run_id, told)


def test_a_lost_host_is_replaced_by_another_and_fenced_when_it_is_back(
    started: list[Hosts], folder: Path, tmp_path: Path
) -> None:
    short = {"RANKZERO_LOST_AFTER_S": "4", "RANKZERO_HEARTBEAT_S": "1"}
    hosts, told = cluster_of(started, folder, 3, **short), tmp_path / "told"
    run_id = hosts.launch(SCRIPT, args=[str(told)], max_restarts=1, on_lost_node="end", **TWO_NODES)
    goes_on_elsewhere(hosts, run_id, told)


def goes_on_elsewhere(hosts: Hosts, run_id: str, told: Path) -> None:
    """Cut a host off, see the run go on without it, mend it, and see that nothing of the old attempt is left."""
    wait_for(lambda: saved(hosts, run_id), "a checkpoint", explain=hosts.tail)
    lost = next(h for h in hosts_of(hosts, run_id, 1) if h is not hosts[0])
    lost.cut()
    wait_for(lambda: attempt(hosts, run_id) == (2, "running"), "the next attempt", 120, explain=hosts.tail)
    assert lost not in hosts_of(hosts, run_id, 2)
    assert left_of(lost, run_id, 1), "the lost host still has its ranks: nobody can reach it"
    assert not any(left_of(host, run_id, 1) for host in hosts.hosts if host is not lost)
    resumed_at = hosts.run(run_id)["step"]
    wait_for(lambda: hosts.run(run_id)["step"] > resumed_at + 5, "steps of the second attempt")
    lost.mend()
    wait_for(lambda: not left_of(lost, run_id, 1), "the old ranks to be ended", 60, explain=hosts.tail)
    wait_for(lambda: any("is back" in line for line in history(hosts, run_id)), "the proof", 60)
    assert attempt(hosts, run_id) == (2, "running")
    told.touch()
    assert hosts.wait_state(run_id)["state"] == "succeeded"
    first, second = hosts.get(f"/api/runs/{run_id}/attempts")
    assert (first["state"], first["reason"], second["state"]) == ("failed", "node lost", "succeeded")
    assert f"The node {lost.name} was lost" in first["message"]
    assert any("restarted (1 of 1): the node" in line for line in history(hosts, run_id))
    assert_the_curve_has_no_break(hosts, run_id)
    assert hosts.left_of(run_id) == []


def assert_the_curve_has_no_break(hosts: Hosts, run_id: str) -> None:
    """Every step once, each with the loss that a run without a break has."""
    points = hosts.get(f"/api/runs/{run_id}/metrics?name=train/loss")["train/loss"]
    assert [point[0] for point in points] == list(range(1, len(points) + 1))
    for step, loss, _ in points:
        assert loss == pytest.approx((1 - 2 * 0.001) ** (2 * (step - 1)), rel=1e-4)


def saved(hosts: Hosts, run_id: str) -> list[Any]:
    return [each for each in hosts.get(f"/api/runs/{run_id}/checkpoints") if each["complete"]]


def attempt(hosts: Hosts, run_id: str) -> tuple[int, str]:
    run = hosts.run(run_id)
    return run["attempt"], run["state"]


def history(hosts: Hosts, run_id: str) -> list[str]:
    return [line["text"] for line in hosts.get(f"/api/runs/{run_id}/history")]


def hosts_of(hosts: Hosts, run_id: str, number: int) -> list[Host]:
    parts = hosts.get(f"/api/runs/{run_id}/attempts")[number - 1]["parts"]
    return [next(host for host in hosts.hosts if host.name == part["node"]) for part in parts]


def left_of(host: Host, run_id: str, number: int) -> list[Any]:
    """Ranks of one attempt on a host."""
    mine = [process for process in host.of_run(run_id) if process.is_running()]
    return [p for p in mine if p.environ().get("RANKZERO_ATTEMPT") == str(number)]
