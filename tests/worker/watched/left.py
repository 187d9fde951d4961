"""The folder of a command that has ended, as its front leaves it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tests.worker.streams.event_bytes import scalar
from worker.node import processes
from worker.watched import folder as folders
from worker.watched.folder import Watched


def left_behind(data: Path, cwd: Path, steps: int = 5, **state: Any) -> Path:
    """Make the folder of a command that wrote event files, printed a line and succeeded; `state`: what differs."""
    began = time.time() - 60.0
    run_id = folders.new_id()
    watched = Watched(
        watch_id=folders.new_id(), run_id=run_id, argv=["python", "train.py"], cwd=str(cwd), host=os.uname().nodename,
        account="mara", pid=1, started_at=began,
    )  # fmt: skip
    attempt = folders.make(data, watched) / folders.ATTEMPT
    env = {"RANKZERO_RUN_ID": run_id, "RANKZERO_ATTEMPT": "1", "RANKZERO_NODE_RANK": "0"}
    launch = {"argv": watched.argv, "env": env, "cwd": str(cwd), "launcher": "python", "processes": 1, "first_rank": 0}
    (attempt / "launch.json").write_text(json.dumps(launch))
    ended = {
        "pid": 1, "start_ticks": 1, "boot_id": processes.boot_id(), "state": "ended", "ranks": {"0": 2},
        "launcher_pid": 2, "launch_error": None, "started_at": began, "running_at": began, "stop_requested_at": None,
        "ended_at": began + 30.0, "exit_code": 0, "signal": None, "killed": [], "out_of_memory_kills": 0,
    }  # fmt: skip
    (attempt / "supervisor.json").write_text(json.dumps(ended | state))
    (attempt / "supervisor.lock").touch()
    (attempt / "logs/rank0.out").write_text("trained\n")
    (attempt / "logs/rank0.err").touch()
    (cwd / "runs").mkdir(parents=True, exist_ok=True)
    points = b"".join(scalar(step, step * 0.5, wall=began + step) for step in range(steps))
    (cwd / f"runs/events.out.tfevents.{run_id}").write_bytes(points)
    return attempt.parent
