"""Hosts that are cut off for good: the rest is ended, the run goes on elsewhere, and who comes back late is fenced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.host_runs import SCRIPT, assert_the_curve_has_no_break, history, hosts_of, saved
from tests.end_to_end.hosts import Host, Hosts, why_not
from tests.end_to_end.kills import written_points
from tests.end_to_end.product import safely, wait_for

pytestmark = pytest.mark.real

TWO_NODES = {"nodes": 2, "gpus_per_node": 1}
SHORT = {"RANKZERO_LOST_AFTER_S": "4", "RANKZERO_HEARTBEAT_S": "1"}


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
def test_a_run_goes_on_without_a_lost_host_which_is_fenced_when_it_is_back(
    started: list[Hosts], folder: Path, tmp_path: Path
) -> None:
    hosts, release = cluster_of(started, folder, 2, **SHORT), tmp_path / "told"
    more = {"max_restarts": 1, "min_nodes": 1, "on_lost_node": "end"}
    run_id = hosts.launch(SCRIPT, args=[str(release)], **more, **TWO_NODES)
    goes_on_elsewhere(hosts, run_id, release)
    assert hosts.run(run_id)["world_size"] == 1
    assert "attempt 2: 1 node" in hosts.run(run_id)["attempt_changes"][0]["text"]


@pytest.mark.long
def test_a_host_that_is_gone_for_good_is_replaced_by_another(
    started: list[Hosts], folder: Path, tmp_path: Path
) -> None:
    """With the limits as they are by default: 30 seconds of silence, and as long without a step."""
    hosts, release = cluster_of(started, folder, 3), tmp_path / "told"
    run_id = hosts.launch(SCRIPT, args=[str(release)], max_restarts=1, **TWO_NODES)
    goes_on_elsewhere(hosts, run_id, release)
    assert hosts.run(run_id)["world_size"] == 2


@pytest.mark.long
def test_a_host_on_which_everything_was_killed_for_good_is_replaced_by_another(
    started: list[Hosts], folder: Path, tmp_path: Path
) -> None:
    """Its worker does not come back before the run has gone on; then it must say that nothing is left."""
    hosts, release = cluster_of(started, folder, 3, **SHORT), tmp_path / "told"
    run_id = hosts.launch(SCRIPT, args=[str(release)], max_restarts=1, **TWO_NODES)
    wait_for(lambda: saved(hosts, run_id), "a checkpoint", explain=hosts.tail)
    lost = the_one_to_lose(hosts, run_id)
    lost.kill_everything()
    wait_for(lambda: attempt(hosts, run_id) == (2, "running"), "the next attempt", 120, explain=hosts.tail)
    hosts.start_worker(lost)
    wait_for(lambda: any("is back" in line for line in history(hosts, run_id)), "the proof")
    release.touch()
    assert hosts.wait_state(run_id)["state"] == "succeeded"
    assert_the_curve_has_no_break(hosts, run_id)
    assert hosts.left_of(run_id) == []


@pytest.mark.long
def test_a_server_that_was_cut_off_ends_nothing(started: list[Hosts], folder: Path, tmp_path: Path) -> None:
    """To it all nodes look lost; they train on, and what they wrote arrives."""
    hosts, release = cluster_of(started, folder, 3, **SHORT), tmp_path / "told"
    others = {"on_nodes": ["host1", "host2"]}
    run_id = hosts.launch(SCRIPT, args=[str(release)], max_restarts=1, **others, **TWO_NODES)
    hosts.wait_step(run_id, 3)
    hosts[0].cut()
    wait_for(lambda: hosts.run(run_id)["silent_s"] > 30, "a long silence")
    assert hosts.run(run_id)["state"] == "running"
    hosts[0].mend()
    step = hosts.run(run_id)["step"]
    wait_for(lambda: hosts.run(run_id)["step"] > step + 5, "steps to arrive again", explain=hosts.tail)
    release.touch()
    ended = hosts.wait_state(run_id)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1), ended
    assert_the_curve_has_no_break(hosts, run_id)


@pytest.mark.long
def test_a_stop_ends_without_a_lost_host_and_there_when_it_is_back(
    started: list[Hosts], folder: Path, tmp_path: Path
) -> None:
    hosts = cluster_of(started, folder, 2, **SHORT)
    run_id = hosts.launch(SCRIPT, args=[str(tmp_path / "never")], stop_grace_s=3, **TWO_NODES)
    hosts.wait_step(run_id, 3)
    hosts[1].cut()
    hosts.request("POST", f"/api/runs/{run_id}/stop")
    ended = hosts.wait_state(run_id)
    assert ended["state"] == "stopped" and ended["message"].startswith("Stopped; host1 could not be asked")
    assert left_of(hosts[1], run_id, 1) and not left_of(hosts[0], run_id, 1)
    hosts[1].mend()
    wait_for(lambda: not hosts.left_of(run_id), "what was left to be ended", explain=hosts.tail)
    wait_for(lambda: all(node["free"] == 2 for node in hosts.get("/api/nodes")), "the devices to be free")
    assert hosts.run(run_id)["state"] == "stopped"


def the_one_to_lose(hosts: Hosts, run_id: str) -> Host:
    """Rank 0's, if the server is not there."""
    return next(host for host in hosts_of(hosts, run_id, 1) if host is not hosts[0])


def goes_on_elsewhere(hosts: Hosts, run_id: str, release: Path) -> None:
    """Cut a host off, see the run go on without it, mend it, and see that nothing of the old attempt is left."""
    wait_for(lambda: saved(hosts, run_id), "a checkpoint", explain=hosts.tail)
    lost = the_one_to_lose(hosts, run_id)
    lost.cut()
    wait_for(lambda: attempt(hosts, run_id) == (2, "running"), "the next attempt", 120, explain=hosts.tail)
    assert lost not in hosts_of(hosts, run_id, 2)
    assert left_of(lost, run_id, 1), "the lost host still has its ranks: nobody can reach it"
    assert not any(left_of(host, run_id, 1) for host in hosts.hosts if host is not lost)
    resumed_at = wait_for(lambda: hosts.run(run_id)["step"], "a step of the second attempt", explain=hosts.tail)
    wait_for(lambda: hosts.run(run_id)["step"] > resumed_at + 5, "steps of the second attempt")
    lost.mend()
    wait_for(lambda: not left_of(lost, run_id, 1), "the old ranks to be ended", explain=hosts.tail)
    wait_for(lambda: any("is back" in line for line in history(hosts, run_id)), "the proof")
    assert attempt(hosts, run_id) == (2, "running")
    release.touch()
    assert hosts.wait_state(run_id)["state"] == "succeeded"
    first, second = hosts.get(f"/api/runs/{run_id}/attempts")
    assert (first["state"], first["reason"], second["state"]) == ("failed", "node lost", "succeeded")
    assert f"The node {lost.name} was lost" in first["message"]
    assert any("restarted (1 of 1): the node" in line for line in history(hosts, run_id))
    assert_the_curve_has_no_break(hosts, run_id)
    assert_late_points_are_kept(hosts, run_id)
    assert hosts.left_of(run_id) == []


def assert_late_points_are_kept(hosts: Hosts, run_id: str) -> None:
    """All that the first attempt's event files hold, also what was written after the cable was pulled, each once."""
    written: dict[str, list[tuple[int, float]]] = {}
    for host in hosts.hosts:
        written |= written_points(host.data / "runs" / run_id / "attempts" / "1")
    losses = hosts.get(f"/api/runs/{run_id}/metrics?name=train/loss&attempt=1")["train/loss"]
    assert [(step, pytest.approx(value)) for step, value in written["train/loss"]] == [
        (step, value) for step, value, _ in losses
    ]


def attempt(hosts: Hosts, run_id: str) -> tuple[int, str]:
    run = hosts.run(run_id)
    return run["attempt"], run["state"]


def left_of(host: Host, run_id: str, number: int) -> list[Any]:
    """Ranks of one attempt on a host."""
    mine = [process for process in host.of_run(run_id) if process.is_running()]
    return [p for p in mine if safely(p.environ, {}).get("RANKZERO_ATTEMPT") == str(number)]
