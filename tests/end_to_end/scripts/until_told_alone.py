"""Like until_told.py, but its ranks meet only once: none of them notices by itself that another is gone.

torchrun --standalone --nproc-per-node=2 until_told_alone.py FILE
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter


def main(release: Path) -> None:
    dist.init_process_group("gloo")
    dist.barrier()
    writer = SummaryWriter("tensorboard") if dist.get_rank() == 0 else None
    step = 0
    while not release.exists():
        step += 1
        if writer:
            writer.add_scalar("train/loss", 1 / step, step)
            writer.flush()
        time.sleep(0.1)
    if writer:
        writer.close()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
