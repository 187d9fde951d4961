"""A plain DDP script without a line of ours: logs eight scalars a step and measures its own step rate.

torchrun --standalone --nproc-per-node=2 benchmarks/scripts/steps.py --seconds 20 --out rate.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.tensorboard import SummaryWriter


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--warm-up", type=float, default=3.0)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    layers = [torch.nn.Linear(options.width, options.width) for _ in range(4)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    writer = SummaryWriter("tensorboard") if rank == 0 else None
    rate = train(model, optimizer, writer, options)
    if rank == 0:
        options.out.write_text(json.dumps({"steps_per_s": rate}))
    dist.barrier()  # ranks that leave one by one may abort in gloo
    dist.destroy_process_group()


def train(model, optimizer, writer, options) -> float:
    """Steps per second after the warm-up; both ranks end at the same step."""
    batch = torch.randn(options.batch, options.width)
    began = time.perf_counter()
    measured_from, step_at, step = None, 0, 0
    while True:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if writer:
            for number in range(8):
                writer.add_scalar(f"train/s{number}", float(loss), step)
        now = time.perf_counter() - began
        if measured_from is None and now > options.warm_up:
            measured_from, step_at = now, step
        over = torch.tensor(float(now > options.warm_up + options.seconds))
        dist.broadcast(over, src=0)
        if over:
            return (step - step_at) / (now - (measured_from or 0.0))


if __name__ == "__main__":
    main()
