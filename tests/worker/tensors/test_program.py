"""The program in the Python that trains: lines of JSON, bounded memory, and nothing left when it is ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from worker.tensors import rankzero_tensors

pytestmark = pytest.mark.real
FOLDER = Path(rankzero_tensors.__file__).parent
GIB = 1024**3


def started(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "rankzero_tensors", *arguments]
    env = {**os.environ, "PYTHONPATH": str(FOLDER.parent), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)


def lines(*arguments: str) -> list[dict]:
    with started(*arguments) as program:
        assert program.stdout is not None
        found = [json.loads(line) for line in program.stdout]
    assert program.returncode == 0
    return found


def sparse_shards(folder: Path, count: int, tensor_bytes: int) -> None:
    """Safetensors files of one tensor each, all holes: they take no disk."""
    for number in range(count):
        entry = {"dtype": "F32", "shape": [tensor_bytes // 4], "data_offsets": [0, tensor_bytes]}
        header = json.dumps({f"layers.{number}.weight": entry}).encode()
        path = folder / f"model-{number + 1:05}-of-{count:05}.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header)
        os.truncate(path, 8 + len(header) + tensor_bytes)


def test_the_last_line_is_the_result(tmp_path: Path) -> None:
    save_file({"module.w": torch.ones(3)}, tmp_path / "m.safetensors")
    *progress, last = lines("merge", str(tmp_path / "m.safetensors"), str(tmp_path / "out"))
    assert last["result"]["tensors"] == 1
    assert all(list(line) == ["progress"] for line in progress)


def test_what_cannot_be_merged_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    [last] = lines("merge", str(tmp_path / "notes.txt"), str(tmp_path / "out"))
    assert list(last) == ["refused"]


def test_memory_is_bounded_by_the_largest_tensor(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    sparse_shards(tmp_path / "in", count=12, tensor_bytes=GIB // 4)
    program = started("merge", str(tmp_path / "in"), str(tmp_path / "out"))
    with program.stdout:
        *progress, last = [json.loads(line) for line in program.stdout]
    _, program.returncode, used = os.wait4(program.pid, 0)
    assert last["result"]["bytes"] == 3 * GIB
    assert progress[-1]["progress"][1] == 6 * GIB
    assert used.ru_maxrss * 1024 < GIB // 4 + GIB
    shutil.rmtree(tmp_path / "out")


def test_a_program_that_is_ended_leaves_only_its_temporary_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    sparse_shards(tmp_path / "in", count=8, tensor_bytes=GIB // 8)
    with started("merge", str(tmp_path / "in"), str(tmp_path / "out")) as program:
        assert program.stdout is not None
        assert "progress" in program.stdout.readline()
        program.send_signal(signal.SIGTERM)
        assert program.wait() == -signal.SIGTERM
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out.part"]
