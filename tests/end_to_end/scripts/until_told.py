"""A plain DDP script that trains until a file appears, so that a test decides how long it takes.

torchrun --standalone --nproc-per-node=2 until_told.py FILE
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter


def main(release: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if token := os.environ.get("HF_TOKEN"):
        print(f"logged in with {token}", flush=True)
    model = DistributedDataParallel(torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    writer = SummaryWriter("tensorboard") if dist.get_rank() == 0 else None
    over, step = torch.zeros(1), 0
    while not over:
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if writer:
            writer.add_scalar("train/loss", loss.item(), step)
        time.sleep(0.02)
        over += release.exists()
        dist.broadcast(over, src=0)
    if writer:
        torch.save(model.module.state_dict(), "last.pt")
        writer.close()
    dist.barrier()  # ranks that leave one by one may abort in gloo
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
