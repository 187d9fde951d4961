"""A node with the extra `worker` alone: how large it is, that it trains, and what it says of the rest."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import packages
from tests.dashboard.running import LIMIT_S, Running, running
from tests.end_to_end.product import wait_for

pytestmark = pytest.mark.real

MOST_BYTES = 40_000_000
"""Less uv, one program of that size again."""
OF_OTHERS = """
    alembic apprise fastapi numpy optuna pandas pyarrow scipy sklearn sqlalchemy starlette streamlit tensorboard torch
""".split()
IMPORT_ALL = f"""
import importlib, pkgutil, sys
import cli.commands, cli.main, worker
BY_OTHERS = "worker.__main__", "worker.probe", "worker.recipes", "worker.warm", "worker.tensors"
parts = cli.commands, worker
names = [each.name for part in parts for each in pkgutil.walk_packages(part.__path__, part.__name__ + ".")]
for name in names:
    if not name.startswith(BY_OTHERS):
        importlib.import_module(name)
print(len(names), *[name for name in {OF_OTHERS!r} if name in sys.modules or importlib.util.find_spec(name)])
"""
SCRIPT = """
import time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("runs")
for step in range(5):
    value = Summary.Value(tag="train/loss", simple_value=1 / (step + 1))
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
writer.close()
print("trained")
"""


class SmallNode(NamedTuple):
    """An environment and what a first start in it gave."""

    folder: Path
    installed_bytes: int

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment to its end."""
        program, *others = arguments
        argv = [str(self.folder / "bin" / program), *others]
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RANKZERO_"))}
        return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=LIMIT_S, cwd=self.folder)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> SmallNode:
    """Installed by pip from a folder of wheels, as from any index."""
    folder = tmp_path_factory.mktemp("small")
    wheels = folder / "wheels"
    wheels.mkdir()
    for name, distribution in packages.needed(["rankzero[worker]"]).items():
        if name != "rankzero":
            packages.write_wheel(distribution, wheels)
    packages.write_own_wheel(wheels)
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "--python",
        str(environment / "bin/python"),
        "install",
        "-q",
    ]
    options = ["--no-index", "--find-links", str(wheels), "--no-compile", "--disable-pip-version-check"]
    subprocess.run([*pip, *options, "rankzero[worker]"], check=True, env=os.environ | {"PIP_CONFIG_FILE": os.devnull})
    return SmallNode(environment, bytes_below(environment))


def bytes_below(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def test_worker_and_commands_import_without_the_packages_of_the_server(node: SmallNode) -> None:
    imported = node.run("python", "-P", "-c", IMPORT_ALL)
    assert imported.returncode == 0, imported.stderr
    count, *others = imported.stdout.split()
    assert int(count) > 150 and others == []
    uv_bytes = (node.folder / "bin/uv").stat().st_size
    assert node.installed_bytes < bytes_below(node.folder) < MOST_BYTES + uv_bytes


@pytest.mark.parametrize(
    ("command", "extras"), [("up", "server,worker"), ("dashboard", "server"), ("migrate-store", "server")]
)
def test_command_of_the_server_says_what_to_install(node: SmallNode, command: str, extras: str) -> None:
    refused = node.run("rankzero", command, "--data", str(node.folder / "data"))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert re.fullmatch(
        rf"`rankzero {command}` needs packages that are not installed here \(alembic, .*\): "
        rf"pip install 'rankzero\[{extras}\]'\n",
        refused.stderr,
    )


def test_node_without_torch_trains_with_the_python_of_the_run(node: SmallNode, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    with (
        running(tmp_path / "server", on_port=True) as dashboard,
        working(node, dashboard, tmp_path / "node") as process,
    ):
        wait_for(lambda: dashboard.http.get("/api/nodes").json(), "the node", LIMIT_S)
        run_id = dashboard.launch(target=str(script), launcher="python", strategy="single", python=sys.executable)
        wait_for(lambda: dashboard.run(run_id)["state"] in ("succeeded", "failed"), "the end", LIMIT_S)
        run = dashboard.run(run_id)
        assert run["state"] == "succeeded", run
        series = dashboard.http.get(f"/api/runs/{run_id}/metrics").json()["train/loss"]
        assert [step for step, *_ in series] == [0, 1, 2, 3, 4]
        assert process.poll() is None


@contextmanager
def working(node: SmallNode, dashboard: Running, data: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The worker of the environment, joined to the dashboard."""
    argv = [str(node.folder / "bin/rankzero"), "worker", "--server", dashboard.url, "--data", str(data)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
    process = subprocess.Popen([*argv, "--stop-runs"], env=clean | {"RANKZERO_TOKEN": dashboard.join_token})
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(LIMIT_S)
