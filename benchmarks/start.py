"""Measure a launch by the command line until the first optimizer step, warm and cold, against torchrun by hand.

Run as `python -m benchmarks.start [ROUNDS]` on a quiet machine. Each round starts all three in turn, and its ratios are
taken within the round; dashboards and workers run on a temporary directory.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.end_to_end.product import Product, wait_for

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(8, 64)).sum().backward()
optimizer.step()
if dist.get_rank() == 0:
    with open(sys.argv[1], "w") as file:
        file.write(str(time.time()))
dist.destroy_process_group()
"""
WAYS = ("by hand", "cold", "warm")
TARGETS = {"cold": 1.1, "warm": 0.25}


def main(rounds: int = 5) -> None:
    """Print the seconds of each way and the ratios to the start by hand, medians with their quartiles."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "code").mkdir()
        (root / "code" / "train.py").write_text(SCRIPT)
        products = {
            name: Product(root / name, env={"RANKZERO_WARM_START": "1" if name == "warm" else "0"})
            for name in TARGETS
        }
        try:
            for product in products.values():
                product.start()
            seconds = [_round(root, products) for _ in range(rounds)]
        finally:
            for product in products.values():
                product.stop()
    for way in WAYS:
        print(f"{way:8} {_summary([one[way] for one in seconds])} s")
    for way, target in TARGETS.items():
        ratios = [one[way] / one["by hand"] for one in seconds]
        print(f"{way} / by hand: {_summary(ratios)} (at most {target})")


def _round(root: Path, products: dict[str, Product]) -> dict[str, float]:
    """Seconds of each way, one after the other."""
    product = products["warm"]
    wait_for(lambda: _is_imported_ahead(product), "torch to be imported ahead", pause_s=0.5)
    return {"by hand": _by_hand(root)} | {
        name: _launched(root, product) for name, product in products.items()
    }


def _is_imported_ahead(product: Product) -> bool:
    return "torch is imported ahead" in (product.data / "worker.log").read_text()


def _by_hand(root: Path) -> float:
    stepped = root / "stepped"
    torchrun = Path(sys.executable).with_name("torchrun")
    command = [
        str(torchrun),
        "--standalone",
        "--nproc-per-node=2",
        str(root / "code" / "train.py"),
        str(stepped),
    ]
    began = time.time()
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    return _seconds_to(stepped, began)


def _launched(root: Path, product: Product) -> float:
    stepped = root / "stepped"
    command = [sys.executable, "-P", "-m", "cli.main", "launch", str(root / "code" / "train.py")]
    command += ["--gpus-per-node", "2", "--data", str(product.data), "--wait", "--", str(stepped)]
    began = time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=product.env)
    return _seconds_to(stepped, began)


def _seconds_to(stepped: Path, began: float) -> float:
    """Seconds until the moment that the script wrote down, which is then removed."""
    at = float(stepped.read_text())
    stepped.unlink()
    return at - began


def _summary(values: list[float]) -> str:
    low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return f"{median:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
