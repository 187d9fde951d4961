"""A plain DDP script with steps of a steady length, which saves a checkpoint where it is told to.

torchrun --standalone --nproc-per-node=2 benchmarks/scripts/saving_steps.py FOLDER --mib 256

Rank 0 writes the time of each step's end to FOLDER/steps, and takes a path from FOLDER/order: it saves there, and
writes when that began to FOLDER/saves.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH = 512, 256
"""A step of some 20 ms where every rank has a core."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mib", type=int, default=256)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    if dist.get_rank() > 0:
        train(model, optimizer)
    saver = Saver(options.folder, torch.rand(options.mib, 2**18))
    with (options.folder / "steps").open("w") as steps:
        train(model, optimizer, lambda: print(time.time(), file=steps, flush=True), saver)


def train(model, optimizer, on_step=lambda: None, saver=lambda: None) -> None:
    """Until it is ended."""
    batch = torch.randn(BATCH, WIDTH)
    while True:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        on_step()
        saver()


class Saver:
    """Saves the weights when there is an order, each time with another content."""

    def __init__(self, folder: Path, weights: torch.Tensor) -> None:
        self._order, self._saves = folder / "order", folder / "saves"
        self._weights, self._number = weights, 0

    def __call__(self) -> None:
        if not self._order.exists():
            return
        path, self._number = Path(self._order.read_text()), self._number + 1
        self._order.unlink()
        self._weights[0] = self._number
        began = time.time()
        torch.save({"weights": self._weights}, path)
        with self._saves.open("a") as saves:
            print(began, file=saves)


if __name__ == "__main__":
    main()
