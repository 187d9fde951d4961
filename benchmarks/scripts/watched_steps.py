"""A DDP script that does little: steps at a steady rate and logs eight scalars each, until it is ended.

torchrun --standalone --nproc-per-node=2 benchmarks/scripts/watched_steps.py --per-second 20
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--per-second", type=float, default=20.0)
options = parser.parse_args()
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
writer = SummaryWriter("tensorboard") if dist.get_rank() == 0 else None
batch, begun, step = torch.randn(4, 8), time.time(), 0
while True:
    time.sleep(max(0.0, begun + step / options.per_second - time.time()))
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    for number in range(8 if writer else 0):
        writer.add_scalar(f"train/s{number}", float(loss), step)
