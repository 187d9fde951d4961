"""Checkpoints of hundreds of megabytes, and of ten gigabytes: taken and told with flat memory."""

from __future__ import annotations

import resource
import shutil
import time
from pathlib import Path

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


def taken_with_flat_memory(tmp_path: Path, size_bytes: int) -> float:
    """Seconds that it took."""
    work = tmp_path / "work"
    work.mkdir()
    large_checkpoint(work / "last.pt", size_bytes)
    watch, before = CheckpointWatch([work], tmp_path / "outbox"), peak_bytes()
    began = time.monotonic()
    [taken] = watch.step(0.0, final=True)
    assert (taken.prefix, taken.size_bytes) == ("module.", (work / "last.pt").stat().st_size)
    assert peak_bytes() - before < 100 * MIB
    return time.monotonic() - began


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def require_room(path: Path, size_bytes: int) -> None:
    if shutil.disk_usage(path).free < size_bytes:
        pytest.skip(f"needs {size_bytes / GIB:.0f} GiB of free disk")


def test_a_checkpoint_of_400_megabytes_is_taken_with_flat_memory(tmp_path: Path) -> None:
    require_room(tmp_path, 2 * GIB)
    taken_with_flat_memory(tmp_path, 400 * MIB)


@pytest.mark.long
def test_a_checkpoint_of_ten_gigabytes_is_taken_with_flat_memory(tmp_path: Path) -> None:
    require_room(tmp_path, 25 * GIB)
    print(taken_with_flat_memory(tmp_path, 10 * GIB))
