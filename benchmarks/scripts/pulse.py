"""Logs one scalar at a steady rate and notes when: `torchrun pulse.py OUT.json --seconds 30 --per-second 20`.

With `--begin FILE` it logs the first point alone and goes on once somebody has made the file: who watches is there."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--seconds", type=float, default=30.0)
parser.add_argument("--per-second", type=float, default=20.0)
parser.add_argument("--begin", type=Path)
options = parser.parse_args()

writer = SummaryWriter("logs")
begun = time.time()
logged: dict[int, float] = {}
for step in range(int(options.seconds * options.per_second)):
    time.sleep(max(0.0, begun + step / options.per_second - time.time()))
    logged[step] = time.time()
    # The value is the step, so that whoever sees the value drawn knows which point it is.
    writer.add_scalar("pulse", step, step)
    while step == 0 and options.begin and not options.begin.exists():
        time.sleep(0.05)
        begun = time.time()
written = options.out.with_suffix(".new")
written.write_text(json.dumps(logged))
written.rename(options.out)  # whoever waits for it reads all of it
writer.close()
