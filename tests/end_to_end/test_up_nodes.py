"""`rankzero up --demo --nodes 3`: a run over two of three nodes goes on when one of them is killed by a typed line."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.end_to_end.product import WAIT_S, Product, wait_for

pytestmark = pytest.mark.long


def test_run_goes_on_when_one_of_its_nodes_is_killed(tmp_path: Path) -> None:
    product = Product(tmp_path / "data")
    ours, theirs = os.openpty()
    argv = [sys.executable, "-P", "-m", "cli.main", "up", "--demo", "--nodes", "3", "--port", str(product.port)]
    said: list[bytes] = []
    try:
        up = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *argv, "--data", str(product.data)],
            stdin=theirs, stdout=theirs, stderr=theirs, env=product.env, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        reading = threading.Thread(target=read_all, args=(ours, said), daemon=True)
        reading.start()
        wait_for(lambda: b"to let that node fail" in b"".join(said), "the address", explain=lambda: str(said))
        (run,) = product.get("/api/runs")
        product.wait_step(run["id"], 1)
        nodes = product.get("/api/nodes")
        assert [node["name"] for node in nodes] == ["node-1", "node-2", "node-3"]
        victim = [node["name"] for node in nodes if not node["free"]][-1]
        os.write(ours, f"kill {victim}\n".encode())
        wait_for(lambda: product.run(run["id"])["attempt"] == 2, "the next attempt", explain=lambda: str(said))
        product.wait_step(run["id"], 1)
        assert f"{victim} is killed".encode() in b"".join(said)
        os.write(ours, b"\x03")
        assert up.wait(WAIT_S) == 0
        reading.join(WAIT_S)
        wait_for(lambda: not product.processes(), "every process to be gone")
    finally:
        product.clean_up()
        os.close(ours)


def read_all(terminal: int, said: list[bytes]) -> None:
    """Read what a program prints on its terminal, until it has closed that."""
    try:
        while printed := os.read(terminal, 65536):
            said.append(printed)
    except OSError:
        return
