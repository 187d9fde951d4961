"""Prove on this machine's NVIDIA GPU what Rankzero shows and does there: one table, benchmarks/results/gpu.json.

    python -m benchmarks.gpu [ROW …] [--list]

It starts a dashboard and a worker of its own and takes at most eight minutes. The exit code is 1 where a row failed or
is short of its limit. Without a GPU every row says what it needs, nothing is written, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.ending import exit_when_asked
from benchmarks.figures import Figure
from benchmarks.gpu.machine import Lacking, Machine, Wrong, gpu_names
from benchmarks.rows.start import started

RESULT = figures.RESULTS / "gpu.json"
LIMIT_S = 8 * 60 - 20.0
"""For all rows; what is left of eight minutes ends what they started."""


@dataclass(frozen=True)
class Row:
    """What a row shows, what it is compared with, and how it is measured."""

    title: str
    compares: str
    module: str
    act: str
    args: tuple[str, ...] = ()

    def measure(self, machine: Machine) -> Iterator[Figure]:
        """Measure it; its modules import torch and the product only now."""
        module = __import__(f"benchmarks.gpu.{self.module}", fromlist=[self.act])
        act: Callable[..., Iterator[Figure]] = partial(getattr(module, self.act), machine, *self.args)
        yield from act()


HAND, CLOCK = "loss by hand on the CPU in fp32", "the script's own CUDA events"
ROWS = {
    "fp32": Row("both recipes by nccl DDP", HAND, "recipes", "precision", ("fp32",)),
    "bf16": Row("both recipes in bf16", HAND, "recipes", "precision", ("bf16",)),
    "fp16": Row("both recipes in fp16", HAND, "recipes", "precision", ("fp16",)),
    "phases": Row("phases of a step", CLOCK, "watching", "phases"),
    "busy": Row("hardware series, profile, MFU", f"nvidia-smi; {CLOCK}", "watching", "busy"),
    "memory": Row("memory picture when out of memory", "the script's tensors", "watching", "out_of_memory"),
    "foreign": Row("others' process on the GPU", "a limit of 10 s", "watching", "foreign"),
    "resume": Row("checkpoint on the device, resumed", "the run that was not interrupted", "recipes", "resumed"),
    "probe": Row("the probe in a rank, 5 ms steps", "30 µs", "watching", "probe_cost"),
    "compile": Row("torch.compile", "the same without it", "recipes", "compiled"),
    "two": Row("two GPUs", "one with twice the batch", "recipes", "two_devices"),
}
"""Those that take longest last: time is limited."""


@dataclass
class Outcome:
    """What came of a row: its figures, or why there are none."""

    name: str
    state: str
    """`met`, `short`, `failed`, or `needs …`."""
    why: str = ""
    seconds: float = 0.0
    figures: list[Figure] = field(default_factory=list)

    @property
    def is_bad(self) -> bool:
        """Whether the exit code tells of it."""
        return self.state in ("short", "failed")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure the rows, print the table, write the result; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help="which rows; all without one")
    parser.add_argument("--list", action="store_true", help="print their names")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULT, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no row is named {', '.join(sorted(unknown))}; there are: {', '.join(ROWS)}")
    if options.list:
        print("\n".join(ROWS))
        return 0
    gpus, names = gpu_names(), options.rows or list(ROWS)
    if options.device == "cuda" and not gpus:
        print(table([Outcome(name, "needs a GPU") for name in names]))
        print("No NVIDIA GPU that torch can use is here: nothing was measured and nothing was written.")
        return 0
    return measure_all(names, options.device, gpus if options.device == "cuda" else [], options.out)


def measure_all(names: Sequence[str], kind: Any, gpus: list[str], out: Path) -> int:
    """Measure these rows on a product of their own; the exit code is 1 where one failed or is short."""
    exit_when_asked()
    ends_at = time.monotonic() + LIMIT_S
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="rankzero-gpu-") as folder, ExitStack() as running:
        product = started(Path(folder) / "data", running)
        machine = Machine(product, Path(folder), kind, len(gpus) or 2, ends_at)
        for name in names:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            outcomes.append(measured(name, machine))
            if outcomes[-1].state == "failed":
                machine.end_runs()
    print(table(outcomes))
    if set(names) == set(ROWS) or out != RESULT:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(document(outcomes, gpus), indent=1) + "\n")
    return int(any(outcome.is_bad for outcome in outcomes))


def measured(name: str, machine: Machine) -> Outcome:
    """One row; what goes wrong in it stops no other."""
    outcome, began = Outcome(name, "met"), time.monotonic()
    try:
        with machine.in_time():
            outcome.figures.extend(ROWS[name].measure(machine))
        if not all(figure.is_met for figure in outcome.figures):
            outcome.state = "short"
    except Lacking as error:
        outcome.state = f"needs {error}"
    except Wrong as error:
        outcome.state, outcome.why = "failed", str(error)
    except Exception as error:
        traceback.print_exc()
        outcome.state, outcome.why = "failed", f"{type(error).__name__}: {error}"[:300]
    outcome.seconds = time.monotonic() - began
    return outcome


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each figure; for a row without one what it would compare, and why it did not."""
    lines = [("row", "what", "Rankzero", "compared with", "theirs", "ratio", "limit", "")]
    for outcome in outcomes:
        row = ROWS[outcome.name]
        for one in outcome.figures:
            state = "met" if one.is_met else "short"
            lines.append((outcome.name, one.what, one.ours, one.peer, one.theirs, str(one.ratio), one.aim, state))
        if not outcome.figures or outcome.state not in ("met", "short"):
            lines.append((outcome.name, row.title, "", row.compares, "", "", "", outcome.state))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*text, *(f"{one.name} failed: {one.why}" for one in outcomes if one.why)])


def document(outcomes: Sequence[Outcome], gpus: Sequence[str]) -> dict[str, Any]:
    """What is written: the figures as those of `make bench`, and the state of every row."""
    import torch

    hardware = f"{len(gpus)} x {gpus[0]}" if gpus else "no GPU"
    machine = f"{hardware}, {os.cpu_count()} cores, torch {torch.__version__}, Python {platform.python_version()}"
    measured = [asdict(one) | {"met": one.is_met} for outcome in outcomes for one in outcome.figures]
    rows = [
        {"name": one.name, "state": one.state, "why": one.why, "seconds": round(one.seconds, 1)} for one in outcomes
    ]
    return {"machine": machine, "load": round(os.getloadavg()[2], 1), "figures": measured, "costs": [], "rows": rows}


if __name__ == "__main__":
    sys.exit(main())
