"""Fill a GPU after a step, line by line, until an allocation fails: out_of_memory.py OUT."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

WIDTH = 4096
model = torch.nn.Linear(WIDTH, WIDTH, bias=False).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(64, WIDTH, device="cuda")).square().mean().backward()
    optimizer.step()
size = model.weight.numel() * model.weight.element_size()
Path(sys.argv[1]).write_text(json.dumps({"parameters": size, "gradients": size, "optimizer": 2 * size}))
piece = torch.cuda.get_device_properties(0).total_memory // 10
kept = []
while True:
    kept.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))  # this line fills it
