"""A node that makes the environments of projects from local wheels alone, by the real uv."""

from __future__ import annotations

import hashlib
import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from domain.messages import EnvironmentReport
from domain.spec import Assignment, RunSpec
from tests.packages import write_made_wheel, write_torch_wheel
from worker.environments.environment import EnvironmentMaker
from worker.launch.preparation import LocalNode


class Node:
    """One node with its own data directory and a folder of wheels instead of an index."""

    def __init__(self, folder: Path, wheels: Path) -> None:
        self.folder, self.wheels = folder, wheels
        self.reports: list[EnvironmentReport] = []
        self.is_stopped: Callable[[], bool] = lambda: False
        self.env = {"PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1", "UV_CACHE_DIR": str(folder / "cache")}

    def make(self, files: dict[str, str], environment: str = "auto", attempt: str = "1", **spec: object) -> Assignment:
        """Make the environment of a run whose code are these files. Raises CannotStart."""
        code = archive(files)
        sha256 = hashlib.sha256(code).hexdigest()
        run = RunSpec.model_validate(
            {"target": "/project", "entry": "train.py", "snapshot": sha256, "environment": environment, "env": self.env}
            | spec
        )
        assignment = Assignment(
            run_id="abcdefghij", attempt=1, fence=1, node_rank=0, action="run", spec=run, devices=["cpu:0"],
            device_kind="cpu",
        )  # fmt: skip
        maker = EnvironmentMaker(
            self.attempt(attempt),
            LocalNode("gpu-2", self.folder, sys.executable),
            lambda _, target: target.write_bytes(code) and None,
            lambda: self.is_stopped(),
            self.reports.append,
        )
        return maker.with_environment(assignment)

    def attempt(self, name: str) -> Path:
        """The directory of an attempt."""
        folder = self.folder / "runs" / "abcdefghij" / "attempts" / name / "node0"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def environments(self) -> list[str]:
        """What lies among the environments, without the lock files."""
        return sorted(path.name for path in (self.folder / "envs").glob("*") if path.suffix != ".lock")


def archive(files: dict[str, str]) -> bytes:
    """The snapshot of these files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return content.getvalue()


def write_wheels(folder: Path) -> Path:
    """A torch of this environment, and two versions of a package that nothing else has."""
    write_torch_wheel(folder)
    for version in ("1.0", "2.0"):
        write_made_wheel(folder, "locked", version, {"locked/__init__.py": f"VERSION = {version!r}\n"})
    return folder
