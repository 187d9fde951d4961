"""A training on tokens until a file appears, which counts its own speed: tokens.py OUT UNTIL WIDTH LAYERS BATCH."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from stopwatch import Stopwatch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

CONTEXT, WARM_UP = 256, 20
out, until = Path(sys.argv[1]), Path(sys.argv[2])
width, depth, batch_size = map(int, sys.argv[3:6])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
blocks = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(depth)]
inner = torch.nn.Sequential(torch.nn.Embedding(256, width), *blocks, torch.nn.Linear(width, 256)).to(device)
model = DistributedDataParallel(inner)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(torch.randint(0, 256, (batch_size * 64, CONTEXT))), batch_size=batch_size)
watch, step = Stopwatch(device), 0
while not until.exists():
    for (tokens,) in loader:
        tokens = tokens.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = torch.nn.functional.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            loss.item()  # as a training that prints; the host does not run ahead of the device by more
        if step >= WARM_UP:
            watch.mark()
step_s = statistics.median(watch.seconds())
count = sum(parameter.numel() for parameter in model.parameters())
out.write_text(json.dumps({"step_s": step_s, "tokens_per_s": batch_size * CONTEXT / step_s, "parameters": count}))
dist.destroy_process_group()
