"""What the probe costs: the step time of one script with and without it, in turn.

    .venv/bin/python benchmarks/probe.py

For a step of about 5 ms and one of about 100 ms, prints the median ratio (with / without); 1.000 means that
nothing is lost. The hooks are put in and taken out every few steps of one process, because from one process to the
next a busy machine differs by more than they cost; the share of the probe's own thread is added.
With --pairs N whole processes with and without the probe are compared as well, for a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPT = HERE / "scripts" / "probe_steps.py"
PROBE = HERE.parent / "worker" / "probe"
SIZES = {"about 5 ms": (64, 6400, 10), "about 100 ms": (1536, 240, 4)}
"""Batch size, steps, and steps in a block."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    for name, (batch, steps, block) in SIZES.items():
        within(name, measure(True, options.ranks, batch=batch, steps=steps, blocks=block), block)
        for pair in range(options.pairs):
            # Which of the two comes first changes, so that a drift of the machine favours neither.
            order = (False, True) if pair % 2 else (True, False)
            step_s = {
                watched: statistics.median(measure(watched, options.ranks, batch=batch, steps=steps // 4)["times"])
                for watched in order
            }
            print(f"{name}, whole processes: ratio {step_s[True] / step_s[False]:.3f}", flush=True)


def within(name: str, measured: dict[str, Any], block: int) -> None:
    """Each block against the one before and the one behind it, which were without when it was with."""
    times, share = measured["times"], measured["thread_share"]
    blocks = [statistics.median(times[at : at + block]) for at in range(0, len(times) - block + 1, block)]
    ratios = []
    for number in range(1, len(blocks) - 1):
        around = (blocks[number - 1] + blocks[number + 1]) / 2
        ratios.append(blocks[number] / around if number % 2 == 0 else around / blocks[number])
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(
        f"{name} (median {statistics.median(times) * 1e3:.2f} ms): hooks {middle:.4f} "
        f"(quartiles {low:.4f} to {high:.4f}, {len(ratios)} pairs), thread {share:.4%}, "
        f"ratio {middle + share:.4f}",
        flush=True,
    )


def measure(watched: bool, ranks: int, **arguments: int) -> dict[str, Any]:
    """The script's own figures."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        env = {name: value for name, value in os.environ.items() if not name.startswith("RANKZERO_")}
        if watched:
            env |= {"RANKZERO_PROBE_DIR": f"{folder}/probe", "PYTHONPATH": str(PROBE)}
        argv = [str(Path(sys.executable).parent / "torchrun"), "--standalone", f"--nproc-per-node={ranks}"]
        argv += [str(SCRIPT), f"--out={out}", *(f"--{name}={value}" for name, value in arguments.items())]
        subprocess.run(argv, check=True, cwd=folder, env=env, stderr=subprocess.DEVNULL)
        if watched:
            assert list(Path(folder, "probe").glob("*.jsonl")), "the probe recorded nothing"
        result: dict[str, Any] = json.loads(out.read_text())
        return result


if __name__ == "__main__":
    main()
