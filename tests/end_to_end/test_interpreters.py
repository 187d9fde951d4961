"""Which Python trains, and that the nodes of a run agree on it, with two workers on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import WAIT_S, Product, wait_for
from tests.worker.launch.environments import install_torch, site_packages, venv

pytestmark = pytest.mark.real

SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", total.item(), "prefix", sys.prefix, flush=True)
dist.destroy_process_group()
"""
TWO_NODES = {"nodes": 2, "gpus_per_node": 1}


class Second:
    """A worker beside the product's own, whose default interpreter says that it has another torch."""

    def __init__(self, product: Product, folder: Path) -> None:
        self.product, self.data = product, folder / "second"
        environment = venv(folder / "other")
        install_torch(site_packages(environment), "2.4.1+cu121", "12.1")
        self.python = str(environment / "bin/python")

    def start(self) -> None:
        argv = [sys.executable, "-P", "-m", "worker", "--server", self.product.url, "--name", "second"]
        argv += ["--data", str(self.data), "--slots", "1", "--python", self.python, "--stop-runs"]
        argv += ["--token-file", str(self.product.data / "join-token")]
        self.process = subprocess.Popen(argv, env=self.product.env)
        wait_for(lambda: self.node()["state"] == "alive", "the second node")

    def node(self) -> dict:
        nodes = self.product.get("/api/nodes")
        return next((node for node in nodes if node["name"] == "second"), {"state": "unknown"})

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(WAIT_S)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    running = Product(tmp_path_factory.mktemp("interpreters") / "data", slots=1, env={"RANKZERO_LOST_AFTER_S": "45"})
    try:
        running.start()
        yield running
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()


@pytest.fixture(scope="module")
def second(product: Product, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Second]:
    worker = Second(product, tmp_path_factory.mktemp("second"))
    try:
        worker.start()
        yield worker
    finally:
        worker.end()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "project" / "train.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


def project_environment(script: Path) -> Path:
    """A virtual environment beside a script, which finds the torch of these tests."""
    environment = venv(script.parent / ".venv")
    (site_packages(environment) / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def history(product: Product, run_id: str) -> list[str]:
    return [line["text"] for line in product.get(f"/api/runs/{run_id}/history")]


def tasks(product: Product, run_id: str) -> list[dict]:
    return product.get(f"/api/runs/{run_id}/attempts")[-1]["tasks"]


@pytest.mark.long
def test_a_node_says_what_its_default_interpreter_has(second: Second):
    interpreter = second.node()["info"]["interpreter"]
    assert (interpreter["path"], interpreter["torch"], interpreter["cuda"]) == (second.python, "2.4.1+cu121", "12.1")


def test_nodes_that_disagree_are_named_and_nothing_starts(product: Product, second: Second, script: Path):
    run_id = product.launch(script, **TWO_NODES)
    ended = product.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "preflight"), ended
    assert "The nodes disagree on torch" in ended["message"]
    assert f"second has torch 2.4.1+cu121, CUDA 12.1 ({second.python})" in ended["message"]
    assert ended["message"].endswith("with --python.")
    assert [task["pid"] for task in tasks(product, run_id)] == [None, None]
    wait_for(lambda: all(n["free"] == 1 for n in product.get("/api/nodes")), "the devices to be free")
    assert product.ranks(run_id) == {}


def test_one_interpreter_for_all_settles_it_and_the_run_trains(product: Product, second: Second, script: Path):
    run_id = product.launch(script, python=sys.executable, **TWO_NODES)
    ended = product.wait_state(run_id)
    assert ended["state"] == "succeeded", ended
    interpreter = [task["interpreter"] for task in tasks(product, run_id)]
    assert [facts["path"] for facts in interpreter] == [sys.executable] * 2
    log = product.request("GET", f"/api/runs/{run_id}/logs?rank=0").text
    assert f"sum 2.0 prefix {sys.prefix}" in log
    assert "different Pythons" not in " ".join(history(product, run_id))


@pytest.mark.long
def test_the_environment_in_the_project_trains(product: Product, second: Second, script: Path):
    environment = project_environment(script)
    run_id = product.launch(script, gpus_per_node=1)
    ended = product.wait_state(run_id)
    assert ended["state"] == "succeeded", ended
    assert f"prefix {environment}" in product.request("GET", f"/api/runs/{run_id}/logs?rank=0").text
    assert ended["spec"]["python"] == f"{environment}/bin/python"
    assert f"uses {environment}/bin/python, found in the project" in history(product, run_id)


@pytest.mark.long
def test_the_command_line_finds_it_too(product: Product, second: Second, script: Path):
    environment = project_environment(script)
    env = product.env | {"RANKZERO_URL": product.url, "RANKZERO_TOKEN": product.token()}
    argv = [sys.executable, "-P", "-m", "cli.main", "launch", str(script), "--gpus-per-node", "1"]
    dry = subprocess.run([*argv, "--dry-run", "--json"], env=env, capture_output=True, text=True, check=True)
    planned = json.loads(dry.stdout)
    assert planned["commands"][0]["argv"][0].startswith(f"{environment}/bin/")
    assert f"The run uses {environment}/bin/python, found in the project" in " ".join(planned["warnings"])
    done = subprocess.run([*argv, "--wait", "--json"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    run_id = json.loads(done.stdout)["id"]
    assert tasks(product, run_id)[0]["interpreter"]["path"] == f"{environment}/bin/python"
    assert "found in the project; choose another with --python" in done.stderr


def test_an_environment_without_torch_starts_nothing_and_says_what_to_do(product: Product, script: Path):
    environment = venv(script.parent / ".venv")
    run_id = product.launch(script, gpus_per_node=1)
    ended = product.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "launch failed")
    assert f"The Python {environment}/bin/python has no torch" in ended["message"]
    assert ended["message"].endswith("add a lock file with torch to the code, or choose another with --python.")
    assert tasks(product, run_id)[0]["pid"] is None


@pytest.mark.long
def test_a_node_lost_before_the_start_is_named_and_holds_up_nobody(product: Product, second: Second, script: Path):
    os.kill(second.process.pid, signal.SIGSTOP)  # it does not even close its connections
    try:
        run_id = product.launch(script, python=sys.executable, **TWO_NODES)
        waiting = wait_for(
            lambda: "waits in preflight for second" in str((run := product.run(run_id))["waiting_for"]) and run,
            "the run to say for whom it waits",
        )
        assert waiting["state"] == "starting"
        ended = product.wait_state(run_id)
        assert (ended["state"], ended["reason"]) == ("failed", "node lost"), ended
        assert "The node second was lost before the run started on it" in ended["message"]
    finally:
        os.kill(second.process.pid, signal.SIGCONT)
    wait_for(lambda: second.node()["state"] == "alive", "the second node to be back")
    again = product.launch(script, python=sys.executable, **TWO_NODES)
    assert product.wait_state(again)["state"] == "succeeded"
