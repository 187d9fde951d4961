"""A loss that decays towards a floor, without torch; it saves at SIGTERM and goes on from there.

At steps 10 and 30 it waits until the file GATES/FLOOR-STEP exists, or it is ended."""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

from tensorboardX import SummaryWriter

parser = argparse.ArgumentParser()
parser.add_argument("--floor", type=float)
parser.add_argument("--gates", type=Path)
args = parser.parse_args()

told = []
signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
resume = os.environ.get("RANKZERO_RESUME")
start = int(Path(resume).stem.partition("_")[2]) if resume else 0
writer = SummaryWriter("events", flush_secs=1)
for step in range(start + 1, 61):
    writer.add_scalar("val/loss", args.floor + 0.9**step, step)
    writer.flush()
    while step in (10, 30) and not told and not (args.gates / f"{args.floor}-{step}").exists():
        time.sleep(0.02)
    if told:
        header = json.dumps({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        Path("part").write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
        Path("part").rename(f"step_{step}.safetensors")
        writer.close()
        sys.exit(143)
writer.close()
