"""Lines as the probe of one rank writes them."""

from __future__ import annotations

import json

FIGURES = {"steps_per_s": 4.0, "step_time_s": 0.25, "data_wait_s": 0.05, "samples_per_s": 64.0}


def line(rank=0, step=10, t=100.0, pid=7, world_size=2, **more) -> str:
    return json.dumps({"t": t, "rank": rank, "world_size": world_size, "pid": pid, "step": step} | more) + "\n"
