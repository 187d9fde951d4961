"""Saves as people's scripts do: the DDP wrapper's state dict in place, a sharded folder, and a save that is cut off."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
wrapped = DistributedDataParallel(model)
optimizer = torch.optim.Adam(wrapped.parameters())
for step in range(1, 31):
    wrapped(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        state = {"model": wrapped.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, "last.pt")
        torch.save(state, f"passing_{step}.pt")
        Path(f"passing_{step}.pt").unlink()
    time.sleep(0.02)
if rank == 0:
    torch.save(model.state_dict(), sys.argv[1])
    torch.save(wrapped.state_dict(), "old_style.pth", _use_new_zipfile_serialization=False)
dcp.save({"model": model.state_dict(), "step": step}, checkpoint_id="sharded/step_30")
dist.barrier()
if rank == 0:
    content = Path("last.pt").read_bytes()
    Path("cut.pt").write_bytes(content[: len(content) // 2])
    Path("cut_old.pt").write_bytes(Path("old_style.pth").read_bytes()[:-100])
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
