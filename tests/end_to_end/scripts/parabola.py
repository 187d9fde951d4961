"""Gradient descent on a parabola that logs its loss: the nearer the learning rate is to 0.5, the better."""

import argparse
import json
import os
import time
from pathlib import Path

from tensorboardX import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--step-s", type=float, default=0.05)
args = parser.parse_args()

rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
writer = SummaryWriter("events", flush_secs=1) if rank == 0 else None
x = 1.0
for step in range(args.steps):
    x -= args.lr * 2 * x
    time.sleep(args.step_s)
    if writer:
        writer.add_scalar("val/loss", x * x, step)
        writer.add_scalar("ranks", world, step)
if writer:
    writer.close()
    Path("result.json").write_text(json.dumps({"x": x}))
