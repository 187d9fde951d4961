"""Logs with tensorboardX every 1.5 s and trains nothing; ends when the file `done` appears in its working directory."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from tensorboardX import SummaryWriter

writer = SummaryWriter("board")
for step in range(1, 1000):
    writer.add_scalar("train/loss", 1.0 / step, step, walltime=time.time())
    writer.add_image("digits", np.full((3, 8, 8), 0.5), step)
    time.sleep(1.5)
    if Path("done").exists():
        break
writer.close()
