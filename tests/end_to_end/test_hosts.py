"""Runs over several hosts, and what breaks under them; see `hosts` for how awkward these hosts are."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.end_to_end.hosts import Host, Hosts, why_not
from tests.end_to_end.kills import stored_points, written_points
from tests.end_to_end.product import WAIT_S, safely, wait_for
from tests.worker.sessions import session_niceness
from worker.node.processes import AUTOGROUP
from worker.node.standing_back import DASHBOARD_NICENESS, WORKER_NICENESS

ROOT = Path(__file__).parents[2]
UNTIL_TOLD = Path(__file__).parent / "scripts" / "until_told.py"
ALONE = Path(__file__).parent / "scripts" / "until_told_alone.py"
TWO_NODES = {"nodes": 2, "gpus_per_node": 1}
GONE_WITHIN_S = 30.0
"""From the end of one rank to the last process elsewhere; 3 s on a quiet machine, but these cores are shared."""
Kill = Callable[[Host, str], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where hosts may be made, on a machine that can."""
    if reason := why_not():
        pytest.skip(reason)
    return tmp_path_factory.mktemp("hosts")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Hosts]:
    cluster = Hosts(2, folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.clean_up()


@pytest.fixture
def hosts(cluster: Hosts) -> Iterator[Hosts]:
    cluster.ensure()
    yield cluster
    cluster.free_all_ports()


@pytest.mark.real
def test_hosts_are_gone_with_whoever_made_them(folder: Path) -> None:
    program = """
        import sys, time
        from pathlib import Path
        from tests.end_to_end.hosts import Hosts
        hosts = Hosts(2, Path(sys.argv[1]))
        hosts.boot()
        for host in hosts.hosts:
            host.start("sleep", "1000")
        hosts[1].inside(lambda: __import__("socket").create_server((hosts[1].address, 5000)))
        while not all(host.processes() for host in hosts.hosts):
            time.sleep(0.05)
        print(*[p.pid for h in hosts.hosts for p in [*h.processes(), h]], flush=True)
        time.sleep(1000)
    """
    started = [sys.executable, "-c", textwrap.dedent(program), str(folder)]
    with subprocess.Popen(started, stdout=subprocess.PIPE, cwd=ROOT) as maker:
        assert maker.stdout is not None
        pids = [int(word) for word in maker.stdout.readline().split()]
        assert len(pids) >= 4 and all(psutil.pid_exists(pid) for pid in pids)
        maker.kill()
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids), "the hosts to be gone", 120)


@pytest.mark.real
@pytest.mark.long
def test_a_recipe_and_a_plain_script_train_at_once_on_the_same_hosts(hosts: Hosts) -> None:
    """The default route leads nowhere and a host's name means 127.0.0.1, in all these tests."""
    recipe = hosts.launch("image_classifier", max_steps=12, **TWO_NODES)
    script = hosts.launch(ROOT / "examples" / "ddp.py", args=["--epochs=2"], **TWO_NODES)
    for run_id in (recipe, script):
        ended = hosts.wait_state(run_id)
        assert (ended["state"], ended["world_size"], ended["attempt"]) == ("succeeded", 2, 1), ended
        assert_nothing_is_left_or_lost(hosts, run_id)
        assert [each for each in hosts.get(f"/api/runs/{run_id}/checkpoints") if each["complete"]]
        assert_the_network_of_the_others_was_used(hosts, run_id)
    assert endpoint(hosts, recipe) != endpoint(hosts, script)
    addresses = {host.name: (host.address, "lan0") for host in hosts.hosts}
    wait_for(lambda: shown_addresses(hosts) == addresses, "the addresses among each other", explain=hosts.tail)


@pytest.mark.real
@pytest.mark.long
def test_a_machine_joins_by_the_line_it_is_given_and_leaves_when_it_is_removed(hosts: Hosts) -> None:
    made = hosts.request("POST", "/api/join-tokens", json={"ttl_s": 600}).json()
    assert (made["url"], made["warning"]) == (hosts.url, None)
    options = f"--name third --slots 1 --data {hosts[1].home / 'third'}"
    line = f"cd {Path(sys.prefix).parent} && exec env {made['command']} {options}"
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    worker = hosts[1].start("sh", "-c", line, env=path)

    def third() -> dict[str, Any] | None:
        return next((node for node in hosts.get("/api/nodes") if node["name"] == "third"), None)

    wait_for(lambda: third() or worker.poll() is not None, "the new node", explain=hosts.tail)
    assert hosts.get("/api/join-tokens")[0]["uses"] == 1
    assert hosts.request("DELETE", "/api/nodes/third").json() == {"name": "third"}
    assert third() is None
    assert worker.wait(WAIT_S) == 1
    assert "rankzero worker: Node third was removed at" in hosts[1].log.read_text()


@pytest.mark.real
@pytest.mark.long
def test_a_worker_with_anothers_name_or_identity_is_refused(hosts: Hosts) -> None:
    copy = hosts[1].home / "copy"
    copied = copy / "node" / "node.json"
    copied.parent.mkdir(parents=True)
    shutil.copy(hosts[0].data / "node" / "node.json", copied)
    known = hosts.get("/api/nodes")
    token = {"RANKZERO_TOKEN": (hosts.data / "join-token").read_text().strip()}
    for more in ([], ["--name", hosts[0].name]):
        program = [sys.executable, "-P", "-m", "worker", "--server", hosts.url, "--data", str(copy), *more]
        assert hosts[1].start(*program, env=token).wait(WAIT_S) == 1
        copied.unlink(missing_ok=True)
    said = hosts[1].log.read_text()
    assert f"Node {hosts[0].name} is connected from {hosts[0].name} with this identity" in said
    assert f"A node named {hosts[0].name!r} is already connected from {hosts[0].name}" in said
    assert [node["id"] for node in hosts.get("/api/nodes")] == [node["id"] for node in known]


@pytest.mark.parametrize("away_s", [3, pytest.param(60, marks=pytest.mark.long)])
def test_training_goes_on_without_worker_cable_or_server(hosts: Hosts, tmp_path: Path, away_s: int) -> None:
    release = tmp_path / "told"
    run_id = hosts.launch(UNTIL_TOLD, args=[str(release)], **TWO_NODES)
    hosts.wait_step(run_id, 3)
    ranks = hosts.ranks(run_id)
    assert {session_niceness(rank.pid) for rank in ranks.values()} == {"0"}
    wait_for(lambda: niceness_of_ours(hosts) == BESIDE_RANKS, "dashboard and workers to stand back")
    for host in hosts.hosts:
        kill_worker(hosts, host)
    has_gone_on(hosts, run_id)
    hosts[1].cut()
    time.sleep(min(away_s, 15))
    hosts[1].mend()
    has_gone_on(hosts, run_id)
    hosts[0].kill(hosts.dashboards())
    time.sleep(away_s)
    hosts.start_dashboard()
    has_gone_on(hosts, run_id)
    assert hosts.ranks(run_id) == ranks
    release.touch()
    ended = hosts.wait_state(run_id)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1), ended
    wait_for(lambda: niceness_of_ours(hosts) == {"0"}, "their full weight after the run")
    assert_nothing_is_left_or_lost(hosts, run_id)


BESIDE_RANKS = {str(DASHBOARD_NICENESS), str(WORKER_NICENESS)} if AUTOGROUP.exists() else {"0"}


def niceness_of_ours(hosts: Hosts) -> set[str]:
    """Return the nice values of dashboards' and workers' sessions; "gone" for a process that has just ended."""
    workers = [worker for host in hosts.hosts for worker in hosts.workers(host)]
    return {safely(partial(session_niceness, process.pid), "gone") for process in (*hosts.dashboards(), *workers)}


def kill_rank(host: Host, run_id: str) -> None:
    host.kill(process for process in host.of_run(run_id) if "RANK" in safely(process.environ, {}))


def kill_torchrun(host: Host, run_id: str) -> None:
    host.kill([host.launcher(run_id)])


def kill_supervisor(host: Host, run_id: str) -> None:
    host.kill([host.supervisor(run_id)])


@pytest.mark.real
@pytest.mark.long
@pytest.mark.parametrize("script", [ALONE, UNTIL_TOLD], ids=["alone", "together"])
@pytest.mark.parametrize(
    ("kill", "node_rank", "message"),
    [
        pytest.param(kill_rank, 1, "rank 1 on host. was killed", id="rank-1"),
        pytest.param(kill_rank, 0, "rank 0 on host. was killed", id="rank-0"),
        pytest.param(kill_torchrun, 1, "torchrun on host. was killed", id="torchrun-1"),
        pytest.param(kill_torchrun, 0, "torchrun on host. was killed", id="torchrun-0"),
        pytest.param(kill_supervisor, 1, "The attempt's supervisor was killed", id="supervisor-1"),
        pytest.param(kill_supervisor, 0, "The supervisor of the attempt", id="supervisor-0"),
    ],
)
def test_death_on_one_host_ends_the_run_on_all(
    hosts: Hosts, tmp_path: Path, kill: Kill, node_rank: int, message: str, script: Path,
    record_property: Callable[[str, Any], None],
) -> None:  # fmt: skip
    run_id = hosts.launch(script, args=[str(tmp_path / "never")], stop_grace_s=5, **TWO_NODES)
    hosts.wait_step(run_id, 3)
    kill(hosts.host_of(run_id, node_rank), run_id)
    began = time.monotonic()
    wait_for(lambda: not hosts.left_of(run_id), "every process of the run to be gone", GONE_WITHIN_S)
    record_property("gone_after_s", round(time.monotonic() - began, 1))
    print(f"gone after {time.monotonic() - began:.1f} s")
    ended = hosts.wait_state(run_id)
    assert ended["state"] == "failed" and re.match(message, ended["message"]), ended
    assert_nothing_is_left_or_lost(hosts, run_id)


@pytest.mark.real
@pytest.mark.long
def test_a_host_that_lost_all_its_processes_tells_so_when_its_worker_is_back(hosts: Hosts, tmp_path: Path) -> None:
    run_id = hosts.launch(ALONE, args=[str(tmp_path / "never")], stop_grace_s=5, **TWO_NODES)
    hosts.wait_step(run_id, 3)
    hosts[1].kill_everything()
    hosts.start_worker(hosts[1])
    ended = hosts.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "killed"), ended
    assert_nothing_is_left_or_lost(hosts, run_id)


@pytest.mark.real
@pytest.mark.long  # tests/worker/preflight/test_rendezvous.py does it with a real torchrun
def test_another_port_is_taken_when_somebody_has_the_one_chosen(hosts: Hosts) -> None:
    run_id = hosts.launch(ROOT / "examples" / "ddp.py", args=["--epochs=1"], **TWO_NODES)
    host, port = wait_for(lambda: chosen_port(hosts, run_id), "a port to be chosen")
    host.take_port(port)
    ended = hosts.wait_state(run_id)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1), ended
    address, other = endpoint(hosts, run_id)
    assert address == host.address and other != port
    assert_nothing_is_left_or_lost(hosts, run_id)


@pytest.mark.real
@pytest.mark.long
def test_several_runs_in_a_row_on_the_same_hosts_never_meet(hosts: Hosts) -> None:
    runs = [hosts.launch(ROOT / "examples" / "ddp.py", args=["--epochs=1"], **TWO_NODES) for _ in range(6)]
    assert [hosts.wait_state(run_id, timeout_s=400)["state"] for run_id in runs] == ["succeeded"] * 6
    for run_id in runs:
        assert_nothing_is_left_or_lost(hosts, run_id)


@pytest.mark.real
@pytest.mark.long
def test_three_hosts_train_together_and_two_harnesses_do_not_collide(hosts: Hosts, folder: Path) -> None:
    others = Hosts(3, folder)
    try:
        others.start()
        theirs = others.launch(ROOT / "examples" / "ddp.py", nodes=3, gpus_per_node=1, args=["--epochs=1"])
        ours = hosts.launch(ROOT / "examples" / "ddp.py", args=["--epochs=1"], **TWO_NODES)
        assert hosts.wait_state(ours)["state"] == "succeeded"
        ended = others.wait_state(theirs)
        assert (ended["state"], ended["world_size"]) == ("succeeded", 3), ended
        assert_nothing_is_left_or_lost(others, theirs)
    finally:
        others.clean_up()
    assert_nothing_is_left_or_lost(hosts, ours)


def assert_the_network_of_the_others_was_used(hosts: Hosts, run_id: str) -> None:
    for node_rank, task in enumerate(tasks(hosts, run_id)):
        host = hosts.host_of(run_id, node_rank)
        assert f"--local-addr={host.address}" in task["argv"]
        assert task["env"]["GLOO_SOCKET_IFNAME"] == task["env"]["NCCL_SOCKET_IFNAME"] == "lan0"


def kill_worker(hosts: Hosts, host: Host) -> None:
    victims = wait_for(lambda: hosts.workers(host), "a worker")
    host.kill(victims)
    hosts.start_worker(host)


def has_gone_on(hosts: Hosts, run_id: str) -> None:
    """It trains, and what it logs arrives."""
    hosts.wait_step(run_id, hosts.run(run_id)["step"] + 5)
    wait_for(lambda: hosts.run(run_id)["state"] == "running", "the run to be running")


def tasks(hosts: Hosts, run_id: str) -> list[dict[str, Any]]:
    (attempt,) = hosts.get(f"/api/runs/{run_id}/attempts")
    return list(attempt["tasks"])


def shown_addresses(hosts: Hosts) -> dict[str, tuple[str, str | None]]:
    return {node["name"]: (node["address"], node["info"].get("interface")) for node in hosts.get("/api/nodes")}


def endpoint(hosts: Hosts, run_id: str) -> tuple[str, int]:
    """Where the nodes were told to meet: the same for each."""
    by_host = {
        tuple(re.search(rf"--master-{what}=(\S+)", " ".join(task["argv"]))[1] for what in ("addr", "port"))  # type: ignore[index]
        for task in tasks(hosts, run_id)
    }
    ((address, port),) = by_host
    return address, int(port)


def chosen_port(hosts: Hosts, run_id: str) -> tuple[Host, int] | None:
    """As soon as the first node's worker has written it down."""
    for host in hosts.hosts:
        note = host.data / f"runs/{run_id}/attempts/1/node0/worker/port"
        if note.exists():
            return host, int(note.read_text())
    return None


def assert_nothing_is_left_or_lost(hosts: Hosts, run_id: str) -> None:
    """No process on any host, and every point that the hosts' event files hold is there once."""
    wait_for(lambda: not hosts.left_of(run_id), "its supervisors to be gone")  # they write its end before they leave
    written: dict[str, list[tuple[int, float]]] = {}
    for host in hosts.hosts:
        written |= written_points(host.data / "runs" / run_id)
    assert stored_points(hosts, run_id) == written
    assert written, "nothing was written"
