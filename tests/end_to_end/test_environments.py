"""A lock file in a run's code becomes the environment that trains, on each node: by the real uv, from local wheels."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.end_to_end.product import Product
from tests.packages import write_made_wheel, write_torch_wheel

pytestmark = pytest.mark.real

SCRIPT = """
import sys, locked, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print("sum", total.item(), "locked", locked.VERSION, "prefix", sys.prefix, flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels, the only index of these tests."""
    folder = tmp_path_factory.mktemp("wheels")
    write_torch_wheel(folder)
    for version in ("1.0", "2.0"):
        write_made_wheel(folder, "locked", version, {"locked/__init__.py": f"VERSION = {version!r}\n"})
    return folder


@pytest.fixture
def only_these(wheels: Path, tmp_path: Path) -> dict[str, str]:
    """Variables of a run, by which its nodes install from these wheels alone."""
    return {"PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1", "UV_CACHE_DIR": str(tmp_path / "cache")}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose requirements fix a package that this environment does not have."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "requirements.txt").write_text(f"torch=={torch_version()}\nlocked==1.0\n")
    return folder


def torch_version() -> str:
    return metadata.version("torch").partition("+")[0]


def log(product: Product, run_id: str) -> str:
    return product.request("GET", f"/api/runs/{run_id}/logs?rank=0").text


def rankzero(product: Product, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = product.env | {"RANKZERO_URL": product.url, "RANKZERO_TOKEN": product.token()}
    argv = [sys.executable, "-P", "-m", "cli.main", *arguments]
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def test_a_run_trains_in_the_environment_of_its_lock(product: Product, project: Path, only_these: dict[str, str]):
    env = [argument for name, value in only_these.items() for argument in ("--env", f"{name}={value}")]
    launched = rankzero(product, "launch", str(project / "train.py"), "--gpus-per-node", "2", "--wait", "--json", *env)
    run_id = json.loads(launched.stdout)["id"]
    assert launched.returncode == 0, launched.stderr + json.dumps(product.run(run_id), indent=1)
    shown = product.run(run_id)["environment"]
    folder = product.data / "envs" / shown["hash"]
    assert (shown["kind"], shown["state"], shown["python"]) == ("requirements.txt", "ready", f"{folder}/bin/python")
    assert f"sum 2.0 locked 1.0 prefix {folder}" in log(product, run_id)
    (task,) = product.get(f"/api/runs/{run_id}/attempts")[-1]["tasks"]
    assert task["argv"][0] == str(folder / "bin" / "torchrun") or task["argv"][0] == shown["python"]
    history = " ".join(line["text"] for line in product.get(f"/api/runs/{run_id}/history"))
    print(history)
    assert f"has the environment {shown['hash']} of requirements.txt: built in" in history


@pytest.mark.long
def test_a_lock_that_cannot_be_built_names_the_package_and_is_left_out_on_request(
    product: Product, project: Path, only_these: dict[str, str]
):
    (project / "requirements.txt").write_text(f"torch=={torch_version()}\nlocked==9.9\n")
    run_id = product.launch(project / "train.py", gpus_per_node=1, env=only_these)
    ended = product.wait_state(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "environment")
    assert "The environment of requirements.txt could not be built on node" in ended["message"]
    assert "locked" in ended["message"]
    shown = product.run(run_id)
    assert shown["environment"]["state"] == "failed"
    assert shown["fix"]["label"] == "Launch without the lock"
    assert "--environment none" in shown["next_step"]


@pytest.mark.long
def test_data_is_there_before_the_ranks(product: Product, tmp_path: Path):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "one.txt").write_text("is here")
    (tmp_path / "train.py").write_text("print('data', open('data/one.txt').read(), flush=True)\n")
    launched = rankzero(
        product, "launch", str(tmp_path / "train.py"), "--launcher", "python", "--gpus-per-node", "1", "--wait",
        "--stage", f"{tmp_path / 'set'}=data", "--json",
    )  # fmt: skip
    assert launched.returncode == 0, launched.stderr
    run_id = json.loads(launched.stdout)["id"]
    assert "data is here" in log(product, run_id)
    (phase,) = [phase for phase in product.get(f"/api/runs/{run_id}/timeline") if phase["phase"] == "data"]
    assert phase["note"] == "data: 1 file, 7 B"
