"""What watching costs: the step rate of one script under Rankzero and under plain torchrun, in turn.

    .venv/bin/python benchmarks/overhead.py --pairs 5

Prints the ratio (with / without) of each pair and the median; 1.00 means nothing is lost.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.end_to_end.product import Product

SCRIPT = Path(__file__).parent / "scripts" / "steps.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--batch", type=int, default=64, help="a larger batch makes a longer step")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    ratios = []
    for pair in range(options.pairs):
        # Which of the two comes first changes, so that a drift of the machine favours neither.
        order = (without_us, with_us) if pair % 2 else (with_us, without_us)
        rates = {measure.__name__: measure(options) for measure in order}
        ratios.append(rates["with_us"] / rates["without_us"])
        print(f"pair {pair + 1}: {rates['with_us']:.1f} with, {rates['without_us']:.1f} without,", end=" ")
        print(f"ratio {ratios[-1]:.3f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.3f} (min {min(ratios):.3f}, max {max(ratios):.3f})")


def without_us(options: argparse.Namespace) -> float:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rate.json"
        argv = [str(Path(sys.executable).parent / "torchrun"), "--standalone"]
        argv += [f"--nproc-per-node={options.ranks}", str(SCRIPT), *arguments(options, out)]
        subprocess.run(argv, check=True, cwd=folder, stderr=subprocess.DEVNULL)
        return steps_per_s(out)


def with_us(options: argparse.Namespace) -> float:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rate.json"
        product = Product(Path(folder) / "data", slots=options.ranks)
        product.start()
        try:
            run_id = product.launch(SCRIPT, gpus_per_node=options.ranks, args=arguments(options, out))
            ended = product.wait_state(run_id, timeout_s=300 + options.seconds)
            assert ended["state"] == "succeeded", ended
        finally:
            product.stop()
        return steps_per_s(out)


def arguments(options: argparse.Namespace, out: Path) -> list[str]:
    return ["--seconds", str(options.seconds), "--batch", str(options.batch), "--out", str(out)]


def steps_per_s(out: Path) -> float:
    return float(json.loads(out.read_text())["steps_per_s"])


if __name__ == "__main__":
    main()
