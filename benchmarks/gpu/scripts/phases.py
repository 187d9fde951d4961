"""A training that times its forward pass, backward pass and optimizer itself: phases.py OUT STEPS WIDTH."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch.nn.parallel import DistributedDataParallel

out, steps, width = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
layers = [torch.nn.Linear(width, width) for _ in range(4)]
model = DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
optimizer = torch.optim.AdamW(model.parameters())
batch = torch.randn(512, width, device=device)
watch = Stopwatch(device)
for _ in range(steps):
    watch.mark()
    loss = model(batch).square().mean()
    watch.mark()
    loss.backward()
    watch.mark()
    optimizer.step()
    watch.mark()
    optimizer.zero_grad()
seconds = watch.seconds()[4:]  # as the probe counts: from the end of the first step
names = ("forward_s", "backward_s", "optimizer_s")
means = {name: sum(seconds[first::4]) / (steps - 1) for first, name in enumerate(names)}
out.write_text(json.dumps(means))
dist.destroy_process_group()
