"""What the imports leave that a fork would share is named."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from worker.warm.rankzero_warm import channel

pytestmark = pytest.mark.real

START = Path(__file__).parents[4] / "worker" / "warm" / "start.py"


def test_the_file_is_named_and_not_the_connection_to_the_worker(tmp_path: Path):
    opened = tmp_path / "library.db"
    (tmp_path / "sitecustomize.py").write_text(f"file = open({str(opened)!r}, 'w')")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.set_inheritable(True)
        command = [sys.executable, "-u", str(START), "--data", str(tmp_path), "--connection", str(theirs.fileno())]
        env = os.environ | {"PYTHONPATH": str(tmp_path)}
        with subprocess.Popen(command, env=env, pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            received = channel.receive(ours)
            process.wait(timeout=300)
    assert received is not None
    assert received[0]["problem"] == f"importing torch opens a file here ({opened})"
