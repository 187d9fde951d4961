"""Checkpoints of hundreds of megabytes, and of ten gigabytes: taken, told and converted with flat memory."""

from __future__ import annotations

import json
import resource
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from worker.checkpoints.watching import CheckpointWatch

pytestmark = pytest.mark.real

torch = pytest.importorskip("torch")
MIB, GIB = 1024**2, 1024**3


def large_checkpoint(path: Path, size_bytes: int, tensors: int = 4) -> None:
    """As torch.save writes it without checksums, but with holes on the disk where its zeros would be."""
    from torch.serialization import set_crc32_options, skip_data

    each = size_bytes // tensors // 4
    set_crc32_options(False)  # those that it reckons while it skips are of no bytes
    try:
        with skip_data():
            state = {f"module.w{n}": torch.empty(each) for n in range(tensors)}
            torch.save({"model": state, "step": 3}, path)
    finally:
        set_crc32_options(True)
    assert path.stat().st_size >= size_bytes


LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""The program itself asks for more, and gets no more than this."""
MOST_MEMORY_BYTES = 320 * MIB
"""Torch alone takes 190; what is mapped from the file does not count."""


def convert(source: Path, target: Path, *options: str) -> dict[str, Any]:
    """The program's answer, within little memory."""
    command = ["-P", "-m", "worker.checkpoints.convert", str(source), str(target), *options]
    limits = ["--room", str(40 * GIB), "--seconds", "500"]
    limited = [sys.executable, "-c", LIMITED, str(MOST_MEMORY_BYTES), *command, *limits]
    with subprocess.Popen(limited, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        return dict(json.loads(program.stdout.read()))


def taken_and_converted(tmp_path: Path, size_bytes: int) -> dict[str, float]:
    """Seconds that each part took."""
    work = tmp_path / "work"
    work.mkdir()
    large_checkpoint(work / "last.pt", size_bytes)
    watch, before = CheckpointWatch([work], tmp_path / "outbox"), peak_bytes()
    began = time.monotonic()
    [taken] = watch.step(0.0, final=True)
    took = {"taken": time.monotonic() - began}
    assert (taken.prefix, taken.size_bytes) == ("module.", (work / "last.pt").stat().st_size)
    assert peak_bytes() - before < 100 * MIB
    (work / "last.pt").unlink()
    for name, options in {"stripped": ["--strip"], "safetensors": ["--strip", "--safetensors"]}.items():
        began = time.monotonic()
        answer = convert(taken.path, tmp_path / name, *options)
        took[name] = time.monotonic() - began
        assert answer.get("size_bytes") == (tmp_path / name).stat().st_size >= size_bytes, answer
        (check_zip if name == "stripped" else check_safetensors)(tmp_path / name)
        (tmp_path / name).unlink()
    return took


def check_zip(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert b"module." not in archive.read(next(n for n in archive.namelist() if n.endswith("data.pkl")))
    loaded = torch.load(path, weights_only=True, mmap=True)
    assert list(loaded["model"]) == ["w0", "w1", "w2", "w3"]


def check_safetensors(path: Path) -> None:
    with path.open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    assert sorted(header) == ["__metadata__", "w0", "w1", "w2", "w3"]
    assert path.stat().st_size == 8 + size + max(header[f"w{n}"]["data_offsets"][1] for n in range(4))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def require_room(path: Path, size_bytes: int) -> None:
    if shutil.disk_usage(path).free < size_bytes:
        pytest.skip(f"needs {size_bytes / GIB:.0f} GiB of free disk")


def test_a_checkpoint_of_400_megabytes_passes_through_with_flat_memory(tmp_path: Path) -> None:
    require_room(tmp_path, 3 * GIB)
    taken_and_converted(tmp_path, 400 * MIB)


@pytest.mark.long
def test_a_checkpoint_of_ten_gigabytes_passes_through_with_flat_memory(tmp_path: Path) -> None:
    require_room(tmp_path, 35 * GIB)
    print(taken_and_converted(tmp_path, 10 * GIB))
