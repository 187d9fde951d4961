"""Processor time of a step of the recipes' loop against the plainest DDP loop with the same model and data."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Figure, milliseconds, ratios
from benchmarks.rows.start import BY_HAND, TORCHRUN

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "scripts" / "recipe_steps.py"
BLOCK_STEPS, RANKS = 10, 2
WARM_UP = 4
GROUPS = 8
"""Of blocks in a row; each has a ratio of its own."""
MOST = 1.0


def measure(quick: bool) -> Iterator[Figure]:
    """Both loops take turns of ten steps in one process, so that a drift of the machine favours neither."""
    for name in ("language_model", "image_classifier"):
        blocks = _blocks(name, WARM_UP + 2 * GROUPS * (1 if quick else 8))[WARM_UP:]
        ours, theirs = (_groups(blocks[first::2]) for first in (0, 1))
        texts = (milliseconds(statistics.median(each)) for each in (ours, theirs))
        what = f"processor time of a step, recipe {name}"
        yield Figure(what, next(texts), "a plain DDP loop", next(texts), ratios(ours, theirs), MOST, "less")


def _groups(blocks: list[float]) -> list[float]:
    """Seconds of a step in each group."""
    size = len(blocks) // GROUPS
    return [sum(blocks[size * n : size * (n + 1)]) / (size * BLOCK_STEPS) for n in range(GROUPS)]


def _blocks(name: str, blocks: int) -> list[float]:
    """Seconds of rank 0's processor time in each block of steps, ours and theirs in turn."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        command = [
            TORCHRUN,
            "--standalone",
            f"--nproc-per-node={RANKS}",
            str(SCRIPT),
            name,
            str(out),
            str(blocks),
        ]
        env = os.environ | BY_HAND | {"PYTHONPATH": str(ROOT / "worker" / "recipes")}
        subprocess.run(command, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        return list(json.loads(out.read_text()))
