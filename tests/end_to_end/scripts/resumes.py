"""A DDP script that saves every ten steps and goes on from there; its loss follows from the step alone.

torchrun --standalone --nproc-per-node=2 resumes.py FILE [MIB …]

It trains until FILE appears, with MIB of ballast in its checkpoints; further arguments count for nothing.
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


def main(release: Path, ballast_mib: int = 0) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if token := os.environ.get("HF_TOKEN"):
        print(f"logged in with {token}", flush=True)
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    step, over = 0, torch.zeros(1)
    if path := os.environ.get("RANKZERO_RESUME"):
        state = torch.load(path)
        step = state["step"]
        model.load_state_dict(state["model"])
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001)
    writer = SummaryWriter("tensorboard", flush_secs=1) if dist.get_rank() == 0 else None
    while not over:
        loss = ddp(torch.ones(1, 1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if writer:
            writer.add_scalar("train/loss", loss.item(), step)
            if step % 10 == 0:
                state = {"model": model.state_dict(), "step": step}
                torch.save(state | {"ballast": torch.zeros(ballast_mib, 2**18)}, f"step_{step}.pt")
        time.sleep(0.05)
        over += release.exists()
        dist.broadcast(over, src=0)
    if writer:
        writer.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
