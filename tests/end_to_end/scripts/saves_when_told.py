"""A plain DDP script that trains until it is ended, saves every few seconds, and once more at SIGTERM.

torchrun --standalone --nproc-per-node=2 saves_when_told.py [CHECKPOINT]
"""

from __future__ import annotations

import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

SAVE_EVERY_S = 5.0


def main(checkpoint: str) -> None:
    torch.set_num_threads(1)
    told = []
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
    dist.init_process_group("gloo")
    model = torch.nn.Linear(16, 1)
    if checkpoint:
        model.load_state_dict(torch.load(checkpoint, weights_only=True))
    parallel = DistributedDataParallel(model)
    over, saved_at = torch.zeros(1), time.monotonic()
    while not over:
        parallel(torch.randn(8, 16)).square().mean().backward()
        time.sleep(0.05)
        over += bool(told)
        dist.all_reduce(over)
        if dist.get_rank() == 0 and (over or time.monotonic() - saved_at > SAVE_EVERY_S):
            saved_at = time.monotonic()
            torch.save(model.state_dict(), "last.pt")
    dist.destroy_process_group()
    sys.exit(143)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
