"""From a launch by the command line to the first optimizer step, warm and cold, against torchrun typed by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Figure, Spread, in_turns, ratios
from tests.end_to_end.product import Product, is_ready_to_start, wait_for

SCRIPT = """
import sys, time
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
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
BY_HAND = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
MOST = {"cold": 1.1, "warm": 0.25}


def measure(quick: bool) -> Iterator[Figure]:
    """Seconds from the command to the step, each with a dashboard and worker of its own."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        root = Path(folder)
        script, stepped = root / "train.py", root / "stepped"
        script.write_text(SCRIPT)
        acts = {"by hand": lambda: _seconds(by_hand(script, stepped), os.environ | BY_HAND, stepped)}
        for name in MOST:
            product = started(root / name, running, RANKZERO_WARM_START=str(int(name == "warm")))
            acts[name] = lambda product=product: _launched_seconds(product, script, stepped)
        seconds = in_turns(acts, 1 if quick else 5)
    theirs = seconds.pop("by hand")
    for name, ours in seconds.items():
        yield Figure(
            f"launch to the first step, {name}", f"{Spread.of(ours)} s", "torchrun by hand", f"{Spread.of(theirs)} s",
            ratios(ours, theirs), MOST[name], "less",
        )  # fmt: skip


def started(data: Path, running: ExitStack, **env: str) -> Product:
    """A dashboard and a worker that end with the stack."""
    product = Product(data, env=env)
    running.callback(product.clean_up)
    product.start()
    running.callback(product.stop)
    return product


def by_hand(script: Path, *arguments: object) -> list[str]:
    """The command that a user would type instead."""
    return [TORCHRUN, "--standalone", "--nproc-per-node=2", str(script), *map(str, arguments)]


def launched(product: Product, script: Path, *arguments: object) -> list[str]:
    """The command line that launches the script and waits for its end."""
    command = [sys.executable, "-P", "-m", "cli.main", "launch", str(script), "--gpus-per-node", "2"]
    return [*command, "--data", str(product.data), "--wait", "--", *map(str, arguments)]


def _launched_seconds(product: Product, script: Path, stepped: Path) -> float:
    """The same of a launch, once the node has prepared the next start."""
    wait_for(lambda: all(map(is_ready_to_start, product.get("/api/nodes"))), "the node to be ready")
    return _seconds(launched(product, script, stepped), product.env, stepped)


def _seconds(command: list[str], env: dict[str, str], stepped: Path) -> float:
    """Seconds to the moment that the script wrote down, which is then removed."""
    began = time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    at = float(stepped.read_text())
    stepped.unlink()
    return at - began
