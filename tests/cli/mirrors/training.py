"""A run that trains in parts while `rankzero mirror --follow` copies it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.dashboard.running import FakeNode, Running

STEPS = 1000
"""Of each part of the training; more than one request takes."""
LIMIT_S = 120.0


class Training:
    """A run that trains in parts."""

    def __init__(self, dashboard: Running, node: FakeNode) -> None:
        self.run_id = dashboard.launch()
        self._node, self.task, self.parts = node, node.task(), 0
        node.report(self.task, "running")

    def train(self) -> None:
        """Log the next points."""
        at = self.parts
        self._node.log_points(self.task, at * 10, train__loss=points(at), val__loss=points(at))
        self.parts += 1

    def end(self) -> None:
        """End as succeeded."""
        self._node.report(self.task, "succeeded", exit_code=0)


def points(part: int) -> list[tuple[int, float, float]]:
    steps = range(part * STEPS, (part + 1) * STEPS)
    return [(step, 1 / (step + 1), 1_700_000_000.0 + step) for step in steps]


@pytest.fixture
def training(dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    return Training(dashboard, node)


@contextmanager
def following(training: Training, to: str, log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command as a process of its own."""
    argv = [sys.executable, "-m", "cli.main", "mirror", training.run_id, "--to", to, "--follow"]
    with log.open("ab") as written:
        command = subprocess.Popen(argv, stdout=written, stderr=written, env=os.environ | env)
    try:
        yield command
    finally:
        command.kill()
        command.wait()
