"""Small steps of two ranks that go on from their checkpoint: notes the time, process and number of each step.

torchrun … resumed_steps.py STEPS [TIMEOUT_S]

Each rank appends to STEPS.HOST.LOCAL_RANK; TIMEOUT_S is that of its collectives, by default torch's own.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

TORCHS_OWN_TIMEOUT_S = "1800"

timeout_s = float((sys.argv[2:] or [TORCHS_OWN_TIMEOUT_S])[0])
dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
saved, step = Path(os.environ.get("RANKZERO_RESUME", "saved.pt")), 0
if saved.exists():
    step = torch.load(saved)["step"]
with Path(f"{sys.argv[1]}.{os.uname().nodename}.{os.environ['LOCAL_RANK']}").open("a") as steps:
    while True:
        model(torch.ones(8, 64)).sum().backward()
        optimizer.step()
        step += 1
        print(time.time(), os.getpid(), step, file=steps, flush=True)
        if step == 10 and dist.get_rank() == 0:
            torch.save({"step": step}, "partial")
            Path("partial").replace("saved.pt")
        time.sleep(0.05)
