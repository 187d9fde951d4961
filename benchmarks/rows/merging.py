"""A distributed checkpoint merged against torch's own converter, in turns, each in a program of its own.

`dcp_to_torch_save` loads the whole checkpoint and writes it as one file. A merge writes safetensors tensor by tensor,
reads them back, and computes the digests of what it read and wrote. Both leave their files in the page cache.

`RANKZERO_MERGED_MIB` sets the size.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, Spread, in_turns, ratios
from worker.tensors import rankzero_tensors

MIB = 1024 * 1024
MOST_RATIO = 1.0
MOST_MEMORY_MIB = 1024
"""Beside the largest tensor."""
TENSOR_MIB = 64
PROGRAMS = Path(rankzero_tensors.__file__).parents[1]
SAVED = """
import sys, torch, torch.distributed.checkpoint as dcp
count, folder = int(sys.argv[1]), sys.argv[2]
state = {f"layers.{number}.weight": torch.randn(%d, 1024) for number in range(count)}
dcp.save({"model": state}, checkpoint_id=folder, no_dist=True)
"""
CONVERTED = """
import sys
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save(sys.argv[1], sys.argv[2])
"""


def measure(quick: bool) -> Iterator[Figure]:
    """Seconds of each, and the memory of a merge."""
    mib, rounds = (128, 1) if quick else (int(os.environ.get("RANKZERO_MERGED_MIB", "6144")), 3)
    with tempfile.TemporaryDirectory() as folder:
        both = Both(Path(folder), mib)
        seconds = in_turns({"merge": both.merge, "convert": both.convert}, rounds)
    ours, theirs = (f"{Spread.of(seconds[name])} s" for name in ("merge", "convert"))
    what = f"merge of a distributed checkpoint of {mib:,} MiB"
    ratio = ratios(seconds["merge"], seconds["convert"])
    yield Figure(what, ours, "dcp_to_torch_save", theirs, ratio, MOST_RATIO, "less")
    limit = TENSOR_MIB + MOST_MEMORY_MIB
    used = Spread.of(peak / MIB / limit for peak in both.peaks)
    yield Figure("memory of it", f"{max(both.peaks) / MIB:,.0f} MiB", "a limit", f"{limit:,} MiB", used, 1, "less")


class Both:
    """The same checkpoint merged, and converted."""

    def __init__(self, folder: Path, mib: int) -> None:
        self._folder, self._source = folder, folder / "saved"
        self.peaks: list[int] = []
        """Bytes of memory of each merge."""
        rows = TENSOR_MIB * MIB // 4 // 1024
        run([sys.executable, "-c", SAVED % rows, str(mib // TENSOR_MIB), str(self._source)])

    def merge(self) -> float:
        target = self._folder / "merged"
        command = [sys.executable, "-P", "-m", "rankzero_tensors", "merge", str(self._source), str(target)]
        seconds, peak = run(command)
        assert (target / "merge.json").exists()
        shutil.rmtree(target)
        self.peaks.append(peak)
        return seconds

    def convert(self) -> float:
        target = self._folder / "converted.pt"
        seconds, _ = run([sys.executable, "-c", CONVERTED, str(self._source), str(target)])
        target.unlink()
        return seconds


def run(command: list[str]) -> tuple[float, int]:
    """Seconds that a program took, and its most memory in bytes."""
    began = time.perf_counter()
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(PROGRAMS)})
    _, status, used = os.wait4(program.pid, 0)
    program.returncode = os.waitstatus_to_exitcode(status)
    assert program.returncode == 0, command
    return time.perf_counter() - began, used.ru_maxrss * 1024
