"""What a step costs besides the training: the probe's hooks in a rank, its thread, worker, supervisor and dashboard.

All is processor time a step. A clock would not tell 0.99 from 0.98: from one moment to the next a busy machine
differs by more. The hooks are put in and taken out every few steps of one process, in a run under Rankzero.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from benchmarks.cores import processor_s
from benchmarks.figures import Figure, Spread, ratios
from benchmarks.rows.overhead import our_processes
from benchmarks.rows.start import started
from tests.end_to_end.product import Product, wait_for

SCRIPT = Path(__file__).parents[1] / "scripts" / "probe_steps.py"


class Size(NamedTuple):
    """Of a training: samples a batch, steps, steps of a block; half of all follow a change of the hooks, uncounted."""

    batch: int
    steps: int
    block: int


SHORT = "5 ms"
SIZES = {SHORT: Size(64, 9600, 20), "100 ms": Size(1536, 384, 4)}
GROUPS = 12
"""Of neighbouring blocks; each has a ratio of its own."""
MOST, HOOKS_S = 1.02, 30e-6


def measure(quick: bool) -> Iterator[Figure]:
    """Two lengths of steps: the hooks alone, and everything in one figure."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        product = started(Path(folder) / "data", running)
        for number, (name, size) in enumerate(SIZES.items()):
            steps = size.block * 4 * GROUPS if quick else size.steps
            yield from figures_of(name, *measured(product, Path(folder, str(number)), size._replace(steps=steps)))


def figures_of(name: str, blocks: list[float], thread_s: float, processes_s: float) -> Iterator[Figure]:
    """Blocks with and without hooks in turn; seconds of a step each."""
    size = len(blocks) // 2 // GROUPS * 2
    groups = [blocks[size * number : size * (number + 1)] for number in range(GROUPS)]
    hooked, bare = ([statistics.median(group[first::2]) for group in groups] for first in (0, 1))
    hooks = [mine - other for mine, other in zip(hooked, bare, strict=True)]
    if name == SHORT:  # of a long one they are less than what its own time varies by
        limit = Spread.of(hook / HOOKS_S for hook in hooks)
        yield Figure("hooks in a rank's step", _us(statistics.median(hooks)), "a limit", _us(HOOKS_S), limit, 1, "less")
    whole = [each + thread_s + processes_s for each in hooked]
    parts = f"the probe's thread {_us(thread_s)}, worker and dashboard {_us(processes_s)}"
    yield Figure(
        f"processor time of a step of {name}, everything on", f"{_ms(statistics.median(whole))} ({parts})",
        "the step alone", _ms(statistics.median(bare)), ratios(whole, bare), MOST, "less",
    )  # fmt: skip


def measured(product: Product, out: Path, size: Size, more: Sequence[str] = ()) -> tuple[list[float], float, float]:
    """Seconds of a step in each block, and what the probe's thread and our processes take for a step."""
    arguments = ["--out", str(out), *(f"--{name}={value}" for name, value in size._asdict().items()), *more]
    run_id = product.launch(SCRIPT, gpus_per_node=1, args=arguments)
    wait_for(out.with_suffix(".began").exists, "the training to be warm", 120)
    ours = our_processes(product)
    before_s = sum(map(processor_s, ours))
    wait_for(out.exists, "the training to end", 600)
    processes_s = sum(map(processor_s, ours)) - before_s
    assert product.wait_state(run_id)["state"] == "succeeded"
    taken = json.loads(out.read_text())
    return taken["blocks"], taken["thread_s"], processes_s / (2 * len(taken["blocks"]) * size.block)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"
