"""Preflight on real hosts: each thing that keeps nodes from training together is one red cell."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.hosts import PORT, Hosts, why_not
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
TWO_NODES = {"nodes": 2, "gpus_per_node": 1}
SCRIPT = "import torch.distributed as dist; dist.init_process_group('gloo'); dist.barrier()"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    cluster = Hosts(2, tmp_path_factory.mktemp("hosts"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.clean_up()


@pytest.fixture
def hosts(cluster: Hosts) -> Hosts:
    cluster.ensure()
    return cluster


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_firewall_in_front_of_the_endpoint(hosts: Hosts, script: Path) -> None:
    for host in hosts.hosts:
        host.block_all_but(PORT)
    try:
        run, (cell,) = fails(hosts, script)
    finally:
        for host in hosts.hosts:
            host.unblock()
    assert (cell["row"], run["reason"]) == ("reach", "preflight")
    first = next(host for host in hosts.hosts if host.name == cell["peer"])
    assert f"{cell['node']} → {first.name}: no answer in 2 s at {first.address}:" in run["message"]
    assert f"open the TCP ports of {first.name} to {cell['node']}" in run["next_step"]


def test_a_script_that_one_host_lacks(hosts: Hosts, tmp_path: Path) -> None:
    script = hosts[0].data / "train.py"
    script.write_text(SCRIPT)
    run, (cell,) = fails(hosts, script, workdir=str(tmp_path))
    assert (cell["row"], cell["node"], run["reason"]) == ("script", "host1", "script missing")
    assert run["message"] == f"The script {script} does not exist on node host1."


def test_another_torch_on_one_host(hosts: Hosts, script: Path, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "python", "")
    hosts[1].replace_file(python, interpreter(tmp_path / "other", '| sed -E \'s/("torch": )"[^"]*/\\1"2.5.1/\''))
    try:
        run, (cell,) = fails(hosts, script, python=str(python))
    finally:
        hosts[1].unmount(python)
    assert (cell["row"], run["reason"]) == ("torch", "preflight")
    assert "host1 has torch 2.5.1" in run["message"] and "--python" in run["next_step"]


def test_a_full_disk(hosts: Hosts, script: Path) -> None:
    runs = hosts[1].data / "runs"
    runs.mkdir(exist_ok=True)
    hosts[1].fill_disk(runs)
    try:
        run, (cell,) = fails(hosts, script)
    finally:
        hosts[1].unmount(runs)
    assert (cell["row"], cell["node"], run["reason"]) == ("disk", "host1", "preflight")
    assert "free, 256 MiB needed" in run["message"] and str(runs) in run["next_step"]


@pytest.mark.skipif(not FAKETIME, reason="needs libfaketime")
def test_a_clock_that_is_five_seconds_off(hosts: Hosts, script: Path) -> None:
    end_worker(hosts)
    wrong = {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME": "-5", "DONT_FAKE_MONOTONIC": "1"}
    hosts.start_worker(hosts[1], wrong)
    try:
        hosts.wait_for_nodes()
        judged = preflight(hosts)
        run, (cell,) = fails(hosts, script)
    finally:
        end_worker(hosts)
        hosts.start_worker(hosts[1])
    assert [(each["row"], each["node"]) for each in judged["cells"] if each["state"] == "failed"] == [
        ("clock", "host1")
    ]
    assert (cell["row"], cell["value"]) == ("clock", "5.0 s behind the server") and "time" in cell["fix"]
    assert run["reason"] == "preflight"


def test_a_host_that_is_silent(hosts: Hosts) -> None:
    """Its cable is pulled, then its worker stands still."""
    (worker,) = hosts.workers(hosts[1])
    its_start = worker.parent()
    assert its_start is not None

    def resume() -> None:
        worker.resume()
        its_start.resume()  # nsenter stands still with what it has started

    for silence, word in ((hosts[1].cut, hosts[1].mend), (worker.suspend, resume)):
        silence()
        try:
            judged = preflight(hosts, ["host0", "host1"])
        finally:
            word()
        (cell,) = (each for each in judged["cells"] if each["state"] == "failed")
        assert (cell["row"], cell["node"]) == ("alive", "host1") and "worker" in cell["fix"]
        hosts.ensure()
    assert not [each for each in preflight(hosts)["cells"] if each["state"] == "failed"]


def test_new_nodes_are_measured_before_their_first_run_and_not_again(
    tmp_path: Path, script: Path, record_property: Callable[[str, Any], None]
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    hosts = Hosts(2, tmp_path, env={"RANKZERO_PREFLIGHT_BANDWIDTH": "true"})
    try:
        hosts.start()
        took_s = []
        for _ in range(2):
            run_id = hosts.launch(script, launcher="torchrun", **TWO_NODES)
            assert hosts.wait_state(run_id, timeout_s=300)["state"] == "succeeded"
            judged = hosts.get(f"/api/runs/{run_id}/preflight")
            took_s.append(judged["ended_at"] - judged["asked_at"])
            history = [line["text"] for line in hosts.get(f"/api/runs/{run_id}/history")]
            measured = [text for text in history if text.startswith("bandwidth measured: ")]
            assert len(measured) == (len(took_s) == 1), history
        record_property("gate_s", round(took_s[1], 2))
        print(f"with bandwidth {took_s[0]:.2f} s, without {took_s[1]:.2f} s")
        judged = preflight(hosts, bandwidth=True)
        assert judged["bandwidth"][0][1] > 1e5, judged
    finally:
        hosts.clean_up()


def fails(hosts: Hosts, script: Path, **spec: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A run on both hosts that must not start: it, and the red cells of its matrix."""
    run_id = hosts.launch(script, **TWO_NODES, **spec)
    run = hosts.wait_state(run_id)
    assert (run["state"], run["started_at"]) == ("failed", None), run
    assert not hosts.left_of(run_id)
    assert not [log for host in hosts.hosts for log in (host.data / "runs" / run_id).rglob("launcher.*")]
    cells = hosts.get(f"/api/runs/{run_id}/preflight")["cells"]
    red = [cell for cell in cells if cell["state"] == "failed"]
    assert len(red) == 1, red
    return run, red


def preflight(hosts: Hosts, nodes: list[str] | None = None, bandwidth: bool = False) -> dict[str, Any]:
    """On demand; waits for its end."""
    asked = hosts.request("POST", "/api/preflight", json={"nodes": nodes, "bandwidth": bandwidth}).json()

    def ended() -> dict[str, Any] | None:
        judged = hosts.get(f"/api/preflight/{asked['id']}")
        return dict(judged) if judged["ended_at"] is not None else None

    return dict(wait_for(ended, "the preflight to end", 120))


def interpreter(path: Path, changed: str) -> Path:
    """The Python of the tests, as a program whose words may be changed."""
    script = f"""\
        #!/bin/sh
        "{sys.executable}" "$@" {changed}
    """
    path.write_text(textwrap.dedent(script))
    path.chmod(0o755)
    return path


def end_worker(hosts: Hosts) -> None:
    victims = hosts.workers(hosts[1])
    hosts[1].kill(victims)
