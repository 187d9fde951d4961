"""Several nodes of one `rankzero up`: each alone is killed and brought back on request, and has its own runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.up import local_nodes
from cli.up.children import ProgramCommand
from cli.up.local_nodes import ClusterNode, Orders
from tests.end_to_end.product import wait_for

SLEEP = "import time; time.sleep(600)"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[ClusterNode]]:
    argv = [sys.executable, "-c", SLEEP, "--data", str(tmp_path)]
    program = ProgramCommand("worker", argv, tmp_path / "worker.log", os.environ)
    nodes = [
        ClusterNode.beside_others(program, f"node-{number}", tmp_path, {"SHARE": str(number)}) for number in (1, 2)
    ]
    for node in nodes:
        node.worker.step(time.monotonic())
    try:
        yield nodes
    finally:
        for node in nodes:
            node.fail()
            wait_for(lambda node=node: not node.worker.is_running, "the worker to end")


def test_each_has_a_part_of_the_data_directory_and_of_the_devices(nodes: list[ClusterNode], tmp_path: Path) -> None:
    first, second = (node.worker.program for node in nodes)
    assert (first.argv[-1], second.argv[-1]) == (str(tmp_path / "nodes/node-1"), str(tmp_path / "nodes/node-2"))
    assert (first.env["SHARE"], second.env["SHARE"]) == ("1", "2")
    assert first.log != second.log


def test_what_is_typed_kills_one_node_and_brings_it_back(
    nodes: list[ClusterNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = os.openpty()
    said: list[str] = []
    try:
        monkeypatch.setattr(local_nodes, "TERMINAL", theirs)
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())  # the tests' own terminal is another
        orders = Orders(nodes, said.append)
        assert "`kill node-2`" in said.pop()
        type_line(orders, ours, b"kill node-2\n", said)
        wait_for(lambda: not nodes[1].worker.is_running, "the worker to end")
        assert (nodes[1].worker.step(time.monotonic()), nodes[0].worker.is_running) == (None, True)
        assert not nodes[1].worker.is_running and said.pop() == "node-2 is killed, with everything on it."
        type_line(orders, ours, b"start node-2\n", said)
        nodes[1].worker.step(time.monotonic())
        assert nodes[1].worker.is_running and said.pop() == "node-2 starts again."
        type_line(orders, ours, b"kill node-9\n", said)
        assert "node-1, node-2" in said.pop()
    finally:
        os.close(ours)
        os.close(theirs)


def type_line(orders: Orders, terminal: int, line: bytes, said: list[str]) -> None:
    """Type a line, and let it be followed, once the kernel has passed it on."""
    os.write(terminal, line)
    wait_for(lambda: orders.follow() or said, "an answer")


def test_killing_a_node_leaves_the_same_runs_ranks_on_another_alone(tmp_path: Path) -> None:
    ranks = {}
    for rank, name in enumerate(("node-1", "node-2")):
        (tmp_path / f"nodes/{name}/runs/abcdefghij/attempts/1/node{rank}").mkdir(parents=True)
        env = os.environ | {"RANKZERO_RUN_ID": "abcdefghij", "RANKZERO_ATTEMPT": "1", "RANKZERO_NODE_RANK": str(rank)}
        ranks[name] = subprocess.Popen([sys.executable, "-c", SLEEP], env=env)
    try:
        local_nodes.RunProcesses(tmp_path / "nodes/node-1").kill()
        assert ranks["node-1"].wait(60) < 0 and ranks["node-2"].poll() is None
    finally:
        for process in ranks.values():
            process.kill()
            process.wait()
