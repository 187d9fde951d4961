"""A build that breaks off leaves nothing half-done: a killed worker, a full disk."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from domain.messages import Reason
from tests.end_to_end.product import wait_for
from tests.packages import write_made_wheel, write_wheel
from tests.worker.environments.making import Node, write_wheels
from worker.launch.preparation import CannotStart

pytestmark = pytest.mark.long
TORCH = f"torch=={metadata.version('torch').partition('+')[0]}\n"
SETUP = """
import pathlib, time
pathlib.Path({folder!r}, "began").touch()
while not pathlib.Path({folder!r}, "go").exists():
    time.sleep(0.02)
from setuptools import setup
setup(name="slow", version="1.0", py_modules=[])
"""
MAKE = """
import sys
from pathlib import Path
from tests.worker.environments.making import Node
Node(Path(sys.argv[1]), Path(sys.argv[2])).make({"requirements.txt": sys.argv[3]})
"""


@pytest.fixture
def node(tmp_path: Path) -> Node:
    wheels = write_wheels(tmp_path / "wheels")
    write_wheel(metadata.distribution("setuptools"), wheels)
    (tmp_path / "data").mkdir()
    return Node(tmp_path / "data", wheels)


@pytest.fixture
def small_disk(node: Node) -> Iterator[Path]:
    """The environments' folder on a disk of 300 KB."""
    folder = node.folder / "envs"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", folder], check=False)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def write_slow_source(node: Node, folder: Path) -> None:
    """A package whose build waits for the file `go`."""
    files = {
        "setup.py": SETUP.format(folder=str(folder)),
        "PKG-INFO": "Metadata-Version: 2.1\nName: slow\nVersion: 1.0\n",
    }
    with tarfile.open(node.wheels / "slow-1.0.tar.gz", "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"slow-1.0/{name}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))


def test_a_worker_killed_in_mid_build_leaves_no_environment_and_the_next_builds_it(node: Node, tmp_path: Path):
    write_slow_source(node, tmp_path)
    requirements = f"{TORCH}slow==1.0\n"
    argv = [sys.executable, "-c", MAKE, str(node.folder), str(node.wheels), requirements]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    killed = subprocess.Popen(argv, env=env)
    wait_for(lambda: (tmp_path / "began").exists() or killed.poll() is not None, "the build to begin")
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not [name for name in node.environments if "." not in name]
    (tmp_path / "go").touch()  # what the killed one had started may still run: the next waits for its lock
    made = node.make({"requirements.txt": requirements}, attempt="2")
    assert made.spec.python is not None
    assert Path(made.spec.python).exists()
    assert len(node.environments) == 1


def test_a_full_disk_is_said_and_leaves_nothing_behind(node: Node, small_disk: Path):
    write_made_wheel(node.wheels, "large", "1.0", {"large.py": "#" * 2_000_000})
    with pytest.raises(CannotStart) as refused:
        node.make({"requirements.txt": f"{TORCH}large==1.0"})
    assert refused.value.reason == Reason.DISK_FULL
    assert "on node gpu-2" in str(refused.value)
    assert "disk is full" in str(refused.value)
    assert node.environments == []
    made = node.make({"requirements.txt": f"{TORCH}locked==1.0"}, attempt="2")
    assert made.spec.python is not None
