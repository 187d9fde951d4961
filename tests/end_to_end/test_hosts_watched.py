"""Trainings that others start on two hosts: the files of examples/anywhere, each with what its scheduler sets.

The container's start is played by a host with the manifest's command and variables; no cluster is behind it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.hosts import LAN, Host, Hosts, why_not
from tests.end_to_end.product import WAIT_S, wait_for
from tests.end_to_end.watching import (
    ANYWHERE,
    assert_nothing_is_left,
    assert_trained_whole,
    checkout,
    environment,
    new_run,
    run_ids,
)
from tests.examples.pods import Pod, documents, pods_of_job, pods_of_pytorch_job

pytestmark = pytest.mark.real

POD_NAMES = ("trainer-{}.trainer", "trainer-master-{}")
ADDRESSES = "\n".join(f"{LAN}.{host + 1}" for host in range(2))
MPIRUN = Path(__file__).parent / "mpi"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two hosts without workers, that know each other by the names that pods have."""
    if reason := why_not():
        pytest.skip(reason)
    hosts = Hosts(2, tmp_path_factory.mktemp("hosts"))
    try:
        hosts.boot()
        for host in hosts.hosts:
            with (host.home / "hosts").open("a") as names:
                names.writelines(f"{LAN}.{n + 1} {name.format(n)}\n" for n in range(2) for name in POD_NAMES)
        hosts.start_dashboard()
        yield hosts
    finally:
        hosts.clean_up()


def start(cluster: Hosts, host: Host, argv: list[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a command on a host, in a checkout of its own."""
    work = checkout(Path(tempfile.mkdtemp(dir=host.home)))
    given = environment(cluster, host.home / "own")
    secret = {name: value for name, value in given.items() if name != "RANKZERO_TOKEN" or name not in env}
    return host.start("env", f"--chdir={work}", *argv, env=env | secret | {"GLOO_SOCKET_IFNAME": "lan0"})


def train(cluster: Hosts, commands: list[tuple[list[str], dict[str, str]]]) -> None:
    """Run one command on each host, and prove that both became one run, whole."""
    before = run_ids(cluster)
    programs = [start(cluster, host, *command) for host, command in zip(cluster.hosts, commands, strict=False)]
    run_id = new_run(cluster, before, programs=programs)
    assert [program.wait(WAIT_S) for program in programs] == [0] * len(programs), cluster.tail()
    assert_trained_whole(cluster, run_id, {rank: host.name for rank, host in enumerate(cluster.hosts[: len(programs)])})
    assert set(run_ids(cluster)) == {run_id, *before}
    for host in cluster.hosts[: len(programs)]:
        assert_nothing_is_left(host.home / "own")
        wait_for(lambda host=host: not host.find("watched"), f"no process of ours to be left on {host.name}")


def train_pods(cluster: Hosts, pods: list[Pod]) -> None:
    for host, pod in zip(cluster.hosts, pods, strict=True):
        mount(host, pod.files)
    train(cluster, [(pod.argv, pod.env) for pod in pods])


def mount(host: Host, files: dict[str, str]) -> None:
    """Put files on the host alone, below /run."""
    if files:
        subprocess.run(["nsenter", "-t", str(host.pid), "--mount", "mount", "-t", "tmpfs", "none", "/run"], check=True)
    for path, content in files.items():
        on_host = Path(f"/proc/{host.pid}/root/run") / Path(path).relative_to("/var/run")
        on_host.parent.mkdir(parents=True)
        on_host.write_text(content)


def test_the_pods_of_an_indexed_job_are_one_run(cluster: Hosts) -> None:
    train_pods(cluster, pods_of_job(documents("indexed-job.yaml")[-1], {"token": cluster.token()}))


def test_the_pods_of_a_pytorch_job_are_one_run(cluster: Hosts) -> None:
    """Their token is a file."""
    train_pods(cluster, pods_of_pytorch_job(*documents("pytorchjob.yaml"), {"token": cluster.token()}))


@pytest.mark.long
def test_the_nodes_of_skypilot_are_one_run(cluster: Hosts) -> None:
    task = yaml.safe_load((ANYWHERE / "skypilot.yaml").read_text())
    shared = {
        "SKYPILOT_TASK_ID": "sky-managed-2026-11-01-10-00-00-000000_trainer_1-0",
        "SKYPILOT_NODE_IPS": f"{ADDRESSES}\n",
        "SKYPILOT_NUM_NODES": str(task["num_nodes"]),
        "SKYPILOT_NUM_GPUS_PER_NODE": "1",
    }
    nodes = [shared | {"SKYPILOT_NODE_RANK": str(rank)} for rank in range(2)]
    train(cluster, [(["bash", "-c", task["run"]], env) for env in nodes])


@pytest.mark.long
def test_the_nodes_of_dstack_are_one_run(cluster: Hosts) -> None:
    task = yaml.safe_load((ANYWHERE / "trainer.dstack.yml").read_text())
    shared = {
        "DSTACK_RUN_NAME": task["name"],
        "DSTACK_RUN_ID": "5f0d6a38-58f5-4f43-9d7b-0d0a7f0a7c11",
        "DSTACK_NODES_NUM": str(task["nodes"]),
        "DSTACK_GPUS_PER_NODE": "1",
        "DSTACK_MASTER_NODE_IP": f"{LAN}.1",
        "DSTACK_NODES_IPS": ADDRESSES,
    }
    nodes = [shared | {"DSTACK_NODE_RANK": str(rank)} for rank in range(2)]
    train(cluster, [(["bash", "-c", task["commands"][-1]], env) for env in nodes])


@pytest.mark.long
def test_torchrun_on_each_host_is_one_run(cluster: Hosts) -> None:
    torchrun = ["torchrun", "--nnodes=2", f"--master-addr={LAN}.1", "--master-port=29500"]
    commands = [["rankzero", "watch", "--", *torchrun, f"--node-rank={rank}", "examples/ddp.py"] for rank in range(2)]
    train(cluster, [(argv, {}) for argv in commands])


@pytest.mark.long
def test_the_processes_of_mpirun_are_one_run(cluster: Hosts) -> None:
    """Both on one host; with Open MPI's own mpirun where it is installed."""
    path = os.environ["PATH"] if shutil.which("mpirun") else f"{MPIRUN}:{os.environ['PATH']}"
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    before = run_ids(cluster)
    argv = ["env", f"PATH={Path(environment(cluster, MPIRUN)['PATH'].partition(':')[0])}:{path}"]
    argv += [str(ANYWHERE / "mpirun.sh"), f"{LAN}.1:2", "examples/ddp.py"]
    program = start(cluster, cluster[0], argv, as_root)
    run_id = new_run(cluster, before, programs=[program])
    assert program.wait(WAIT_S) == 0, cluster.tail()
    assert_trained_whole(cluster, run_id, {0: "host0", 1: "host0"})
