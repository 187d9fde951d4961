"""The part that nodes with real and with virtual processes share: a folder, a fake server, and assignments."""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from domain.assignments import Assignment
from domain.messages import TaskReport
from domain.spec import RunSpec
from tests.worker.fake_server import FakeServer
from worker.launch.preparation import LocalNode
from worker.trainings.daemon import Daemon

T = TypeVar("T")
RUN = uuid.uuid4().hex[:10]
"""Its own in each test process: what ends a run's processes finds them by this name on the whole machine."""


class NodeUnderTest(ABC):
    """A node in a private directory; restart its worker, and only files and processes stay."""

    daemon: Daemon

    def __init__(self, folder: Path) -> None:
        self.folder, self.server = folder, FakeServer()
        self.node = LocalNode(name="n0", data_dir=folder / "data", python=sys.executable)

    @abstractmethod
    def until(self, condition: Callable[[], T]) -> T:
        """Return the condition's value once it is true."""

    def assignment(
        self, target: str, *, fence: int = 1, action: str = "run", node_rank: int = 0, attempt: int = 1, **more: Any
    ) -> Assignment:
        """An assignment of this run; `more`: further fields, and those of its `spec`."""
        spec = {"target": target, "launcher": "python", "stop_grace_s": 600} | more.pop("spec", {})
        return Assignment(
            run_id=RUN, attempt=attempt, fence=fence, node_rank=node_rank, action=action,
            spec=RunSpec(**spec), devices=["cpu:0"], device_kind="cpu", **more,
        )  # fmt: skip

    def until_settled(self) -> TaskReport | None:
        """Return the end that was reported, once nothing is left to do."""
        self.until(lambda: not self.daemon.attempts)
        return self.server.end()

    def until_ready(self, attempt: int = 1) -> None:
        """Wait until a waiting script waits, and the server has it as running."""
        self.until(lambda: (self.dir(attempt) / "work/ready").exists())
        self.until(lambda: "running" in self.server.states())

    def let_end(self, attempt: int = 1) -> None:
        """End the waiting of a script."""
        (self.dir(attempt) / "work/ready").unlink()

    def dir(self, attempt: int = 1, node_rank: int = 0) -> Path:
        """The attempt's directory."""
        return self.node.data_dir / f"runs/{RUN}/attempts/{attempt}/node{node_rank}"

    def supervisor(self, attempt: int = 1) -> dict[str, Any]:
        """The state that a supervisor has written; empty before."""
        with suppress(OSError):
            return json.loads((self.dir(attempt) / "supervisor.json").read_text())
        return {}


def delete(folder: Path) -> None:
    """Delete a folder into which others write meanwhile."""
    while folder.exists():
        with suppress(OSError):
            shutil.rmtree(folder)
