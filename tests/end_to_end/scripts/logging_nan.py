"""Logs a loss that diverges, then ends well; one process, no DDP."""

from __future__ import annotations

import math

from torch.utils.tensorboard import SummaryWriter

VALUES = (2.0, 1.0, math.nan, math.inf, -math.inf, -0.0, 1e-320)

if __name__ == "__main__":
    with SummaryWriter("tensorboard") as writer:
        for step, value in enumerate(VALUES):
            writer.add_scalar("train/loss", value, step)
