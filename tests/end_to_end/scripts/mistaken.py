"""A DDP training that makes the mistake it is told to make, in each of the ways people make it."""

from __future__ import annotations

import argparse
import math
import os
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torch.utils.tensorboard import SummaryWriter

HANG_AT = 12
FIRST_ATTEMPT = os.environ.get("RANKZERO_ATTEMPT", "1") == "1"


class Lines(Dataset):
    """y = 3 x + 1 at points of its own."""

    def __init__(self, mistake: str, rank: int) -> None:
        self.mistake, self.rank, self.read = mistake, rank, 0

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.read += 1
        if self.mistake == "hang in the loader" and self.rank == 1 and self.read > 4 * HANG_AT:
            threading.Event().wait()  # the disk that does not answer
        x = torch.tensor([index / 64.0, math.sin(index)])
        return x, 3 * x[:1] + 1


class Two(torch.nn.Module):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        layers = [torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)]
        if mistake == "lonely batches":
            layers[1:1] = [torch.nn.Unflatten(1, (2, 2, 2)), torch.nn.BatchNorm2d(2), torch.nn.Flatten()]
        self.layers = torch.nn.Sequential(*layers)
        if mistake == "unused parameters":
            self.forgotten = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mistake")
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    mistake = args.mistake
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Two(mistake)
    replica = DistributedDataParallel(model, find_unused_parameters=mistake == "unused parameters")
    data = Lines(mistake, rank)
    sampler = DistributedSampler(data) if mistake != "same samples" else None
    if mistake == "same samples":
        torch.manual_seed(7)
    loader = DataLoader(
        data, batch_size=1 if mistake == "lonely batches" else 4, sampler=sampler, shuffle=sampler is None
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    writer = SummaryWriter() if rank == 0 else None
    step = 0
    for epoch in range(args.epochs):
        if sampler is not None and mistake != "forgotten set_epoch":
            sampler.set_epoch(epoch)
        for x, y in loader:
            called = model if mistake == "differing replicas" else replica
            x = x + rank if mistake == "differing replicas" else x
            loss = (called(x) - y).square().mean()
            if mistake == "no number" and step >= 5:
                loss = loss * float("nan")
            optimizer.zero_grad()
            loss.backward()
            if mistake != "nothing learned":
                optimizer.step()
            step += 1
            if mistake == "hang before a collective" and rank == 1 and step == HANG_AT and FIRST_ATTEMPT:
                threading.Event().wait()  # as an `if rank == 0:` around what all ranks must do
            if writer is not None:
                writer.add_scalar("train/loss", 0.5 if mistake == "nothing learned" else loss.item(), step)
    if writer is not None:
        writer.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
