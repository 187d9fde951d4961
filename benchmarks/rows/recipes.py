"""Steps a second of the recipes' loop against the plainest DDP loop with the same model and data."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from benchmarks.figures import Figure, Spread, ratios
from benchmarks.rows.start import BY_HAND, TORCHRUN

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "scripts" / "recipe_steps.py"
BLOCK_STEPS, RANKS = 10, 2
WARM_UP = 4
PER_STEP = {"language_model": (8 * 128 * RANKS, "tokens"), "image_classifier": (32 * RANKS, "images")}
"""Of the recipes' defaults."""
LEAST = 1.0


def measure(quick: bool) -> Iterator[Figure]:
    """Both loops take turns of ten steps in one process, so that a drift of the machine favours neither."""
    for name, (per_step, unit) in PER_STEP.items():
        blocks = _blocks(name, WARM_UP + (4 if quick else 120))
        rates = [per_step * BLOCK_STEPS / seconds for seconds in blocks[WARM_UP:]]
        ours, theirs = rates[::2], rates[1::2]
        texts = (f"{statistics.median(each):,.0f} {unit}/s" for each in (ours, theirs))
        yield Figure(
            f"recipe {name}", next(texts), "a plain DDP loop", next(texts), _around(rates), LEAST
        )  # fmt: skip


def _around(rates: list[float]) -> Spread:
    """Each of ours by the mean of theirs before and after it."""
    ours, theirs = rates[2::2], rates[1::2]
    return ratios(ours, [(before + after) / 2 for before, after in pairwise(theirs)][: len(ours)])


def _blocks(name: str, blocks: int) -> list[float]:
    """Seconds of each block of steps, ours and theirs in turn."""
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
