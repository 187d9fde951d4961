"""Cells of a notebook that watch themselves, in a real kernel."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.end_to_end.product import wait_for
from tests.rankzero.watched_process import WatchedProcess

pytestmark = [
    pytest.mark.real,
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning"),
]


class Notebook:
    """A kernel that runs cells one by one."""

    def __init__(self, watched: WatchedProcess) -> None:
        self.watched = watched
        self._client = NotebookClient(nbformat.v4.new_notebook(), timeout=120, kernel_name="python3")
        env = watched.env | {"JPY_SESSION_NAME": "/home/someone/study.ipynb", "IPYTHONDIR": str(watched.folder)}
        self._client.create_kernel_manager()
        self._client.start_new_kernel(cwd=str(watched.folder), env=env)
        self._client.start_new_kernel_client()
        self.pid = int(self.run("import os, rankzero; print(os.getpid())"))

    def run(self, source: str) -> str:
        """Run a cell and return what it printed. Raises CellExecutionError."""
        cell = nbformat.v4.new_code_cell(source)
        self._client.nb.cells.append(cell)
        self._client.execute_cell(cell, len(self._client.nb.cells) - 1)
        outputs = cell.outputs
        return "".join(output.text for output in outputs if output.get("name") == "stdout")

    def close(self) -> None:
        self._client._cleanup_kernel()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[WatchedProcess]:
    with WatchedProcess(tmp_path) as process:
        yield process


@pytest.fixture
def notebook(watched: WatchedProcess) -> Iterator[Notebook]:
    kernel = Notebook(watched)
    yield kernel
    kernel.close()


def test_a_cell_is_a_run_and_the_next_one_is_not(notebook: Notebook, watched: WatchedProcess):
    notebook.run("import torch\nmodel = torch.nn.Linear(2, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)")
    loop = "for step in range(6):\n    loss = model(torch.ones(1, 2)).sum(); loss.backward(); optimizer.step()\n"
    assert notebook.run(f"rankzero.watch()\n{loop}    rankzero.log({{'loss': loss}})\nprint('trained')") == "trained\n"
    assert notebook.run(f"{loop}print('alone', 'RANKZERO_RUN_ID' in os.environ)") == "alone False\n"
    attempt = watched.attempt
    assert (attempt.state["state"], attempt.state["exit_code"]) == ("ended", 0)
    assert (attempt.watched["name"], attempt.watched["argv"]) == ("study", [])
    assert attempt.state["pid"] == notebook.pid
    assert len(attempt.points()["loss"]) == 6
    assert attempt.records()[-1]["step"] == 6
    assert attempt.log("rank0.out") == "trained\n"


def test_an_error_in_a_cell_fails_its_run(notebook: Notebook, watched: WatchedProcess):
    with pytest.raises(CellExecutionError):
        notebook.run("rankzero.watch()\nprint('before')\n{}['missing']")
    attempt = watched.attempt
    assert (attempt.state["state"], attempt.state["exit_code"]) == ("ended", 1)
    log = attempt.log("rank0.err")
    assert log.startswith("Traceback (most recent call last):")
    assert log.endswith("KeyError: 'missing'\n")
    assert "IPython" not in log
    assert notebook.run("print('the kernel lives')") == "the kernel lives\n"


def test_a_block_is_a_run_within_a_cell(notebook: Notebook, watched: WatchedProcess):
    text = "with rankzero.watch('blocked') as run:\n    print('in')\nprint('out', repr(run).startswith('Run '))"
    assert notebook.run(text) == "in\nout True\n"
    assert watched.attempt.log("rank0.out") == "in\n"
    assert watched.attempt.state["state"] == "ended"


def test_stop_interrupts_the_cell_and_keeps_the_kernel(notebook: Notebook, watched: WatchedProcess):
    cell = "import time, pathlib\nrankzero.watch()\n"
    cell += (
        "next(pathlib.Path(os.environ['RANKZERO_DATA']).glob('watched/*/attempt')).joinpath('stop').write_text('1')\n"
    )
    with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
        notebook.run(f"{cell}time.sleep(600)")
    state = watched.attempt.state
    assert state["state"] == "ended"
    assert state["stop_requested_at"] is not None
    assert notebook.run("print(os.getpid())") == f"{notebook.pid}\n"


def test_a_kernel_that_is_killed_leaves_its_run_to_the_companion(notebook: Notebook, watched: WatchedProcess):
    notebook.run("run = rankzero.watch().__enter__()")
    assert watched.attempt.state["state"] == "running"
    os.kill(notebook.pid, signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{notebook.pid}").exists() or _is_zombie(notebook.pid), "the end of the kernel")
    assert watched.attempt.state["state"] == "running"


def _is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
