"""A DDP training of which one rank is slow in the way it is told to be: `slow.py CAUSE [--steps N]`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SLOW_S = 0.06
BATCH = 4
SLOW_RANK = {"barrier": 0, "saving": 0}
"""Only rank 0 evaluates and saves; any other cause is rank 1's."""


class Lines(Dataset):
    def __init__(self, length: int, is_slow: bool) -> None:
        self.length, self.is_slow = length, is_slow

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.is_slow:
            time.sleep(SLOW_S / BATCH)  # a disk far away
        return torch.full((64,), index / self.length)


class Net(torch.nn.Sequential):
    is_slow = False

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.is_slow:
            time.sleep(SLOW_S)  # a device that is busy with something else
        return super().forward(batch)


def burn() -> None:
    while os.getppid() != 1:
        sum(range(100_000))


def compete() -> list[multiprocessing.Process]:
    """Make this rank the least important process of a machine that has no CPU left."""
    others = [multiprocessing.Process(target=burn, daemon=True) for _ in range(os.cpu_count() or 1)]
    for process in others:
        process.start()
    os.nice(19)
    return others


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cause", choices=["nothing", "loader", "copy", "forward", "nice", "barrier", "saving"])
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    is_slow = dist.get_rank() == SLOW_RANK.get(args.cause, 1)
    cause = args.cause if is_slow else "nothing"
    others = compete() if cause == "nice" else []
    net = Net(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    net.is_slow = cause == "forward"
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Lines(BATCH * args.steps * dist.get_world_size(), cause == "loader")
    loader = DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data))
    padding = torch.zeros(64 * 1024 * 1024 if cause == "copy" else 1)
    state = {"model": net.state_dict(), "more": torch.zeros(16 * 1024 * 1024)}
    file = Path(tempfile.gettempdir()) / f"slow-{os.getpid()}.tmp"
    for batch in loader:
        padding = padding.to("cpu", copy=True)
        loss = model(batch.to("cpu", copy=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if cause == "saving":
            torch.save(state, file)
        if args.cause == "barrier":
            time.sleep(SLOW_S if is_slow else 0)  # rank 0 evaluates, the others wait for it
            dist.barrier()
    file.unlink(missing_ok=True)
    for process in others:
        process.terminate()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
