"""From the kill of a rank to the next step, which follows from the last checkpoint, against torchrun's own restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import Figure, Spread, in_turns, ratios
from benchmarks.rows.start import BY_HAND, TORCHRUN, started
from tests.end_to_end.product import Product, wait_for

SCRIPT = Path(__file__).parents[1] / "scripts" / "resumed_steps.py"
STEPS = 40
"""A rank is killed after so many: the checkpoint is stored by then."""
MOST_S = 3.0
MOST = {"cold": 1.1, "warm": 0.5}


def measure(quick: bool) -> Iterator[Figure]:
    """Seconds from the kill to the first step of the new processes."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        root = Path(folder)
        acts = {"torchrun": lambda: by_hand(root / f"hand{time.monotonic_ns()}")}
        for name in ("cold", "warm"):
            product = started(root / name, running, RANKZERO_WARM_START=str(int(name == "warm")))
            acts[name] = lambda product=product: in_a_run(product, root / f"ours{time.monotonic_ns()}")
        seconds = in_turns(acts, 1 if quick else 2)
    theirs = seconds.pop("torchrun")
    for name, ours in seconds.items():
        what, text = f"kill of a rank to the next step, {name}", f"{Spread.of(ours)} s"
        against = "torchrun --max-restarts"
        yield Figure(what, text, against, f"{Spread.of(theirs)} s", ratios(ours, theirs), MOST[name], "less")
    limit = ratios(ours, [MOST_S] * len(ours))
    yield Figure(what, text, "a limit", f"{MOST_S:g} s", limit, 1, "less")


def in_a_run(product: Product, steps: Path) -> float:
    """Launch it with one restart, kill a rank, and stop it once it trains again."""
    run_id = product.launch(SCRIPT, gpus_per_node=2, args=[str(steps)], max_restarts=1, stop_grace_s=1)

    def is_stored() -> bool:
        return any(found["complete"] for found in product.get(f"/api/runs/{run_id}/checkpoints"))

    try:
        return _seconds_after_kill(steps, is_stored)
    finally:
        product.request("POST", f"/api/runs/{run_id}/stop")
        product.wait_state(run_id)


def by_hand(steps: Path) -> float:
    """The same with the restarts of torchrun, as typed by a user."""
    steps.mkdir()
    command = [TORCHRUN, "--standalone", "--nproc-per-node=2", "--max-restarts=1", str(SCRIPT), str(steps)]
    # With gloo, ranks that start again cannot meet in the agent's own store.
    env = os.environ | BY_HAND | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with subprocess.Popen(command, env=env, cwd=steps, stderr=subprocess.DEVNULL) as process:
        try:
            return _seconds_after_kill(steps, lambda: True)
        finally:
            process.terminate()


def _seconds_after_kill(steps: Path, may_kill: Callable[[], bool]) -> float:
    ranks = [Path(f"{steps}.{os.uname().nodename}.{rank}") for rank in (0, 1)]
    wait_for(lambda: all(len(read_steps(rank)) >= STEPS for rank in ranks) and may_kill(), "steps")
    pid = int(read_steps(ranks[1])[-1][1])
    killed_at = time.time()
    os.kill(pid, signal.SIGKILL)
    after = wait_for(lambda: [line for line in read_steps(ranks[1]) if int(line[1]) != pid], "the next step")
    assert int(after[0][2]) == 11, f"it did not continue from the checkpoint: {after[0]}"
    return float(after[0][0]) - killed_at


def read_steps(path: Path) -> list[list[str]]:
    """Time, process id and number of each step so far."""
    text = path.read_text() if path.exists() else ""
    return [line.split() for line in text.splitlines() if len(line.split()) == 3]
