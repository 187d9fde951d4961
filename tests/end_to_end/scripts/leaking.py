"""A plain DDP script whose last rank keeps 12 MiB of every step, or collects them now and then.

torchrun --standalone --nproc-per-node=2 leaking.py leak|collect FILE

It trains until FILE appears.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FLOATS_OF_12_MIB = 3 * 2**20
COLLECTED_AFTER = 40


def main(mode: str, release: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    is_last = dist.get_rank() == dist.get_world_size() - 1
    kept: list[torch.Tensor] = []
    over = torch.zeros(1)
    while not over:
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if is_last:
            kept.append(torch.ones(FLOATS_OF_12_MIB))
        if mode == "collect" and len(kept) == COLLECTED_AFTER:
            kept.clear()
        time.sleep(0.5)
        over += release.exists()
        dist.broadcast(over, src=0)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
