"""What watching costs: processor time of our processes per second of a training that logs 20 points/s of 8 series.

Two ranks that do little else, with four viewers and without, in turn: processor time tells 1 % of a core from 2 %,
which a step rate does not.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.cores import processor_s
from benchmarks.figures import Figure, Spread, in_turns
from benchmarks.rows.overhead import VIEWERS, viewer
from benchmarks.rows.start import started
from tests.end_to_end.product import Product

SCRIPT = Path(__file__).parents[1] / "scripts" / "watched_steps.py"
PROGRAMS = {"dashboard": "dashboard", "worker": "worker", "supervisor": "worker.attempt.supervisor"}
"""An argument that only its command line has."""
MOST = {
    "four viewers": {"dashboard": 0.04, "worker": 0.01, "supervisor": 0.005},
    "no viewer": {"dashboard": 0.01, "worker": 0.005, "supervisor": 0.005},
}
"""Share of a core that each program may take."""
Shares = dict[str, float]


def measure(quick: bool) -> Iterator[Figure]:
    """Shares of a core, with and without viewers by turns."""
    settle_s, seconds, rounds = (5.0, 5.0, 1) if quick else (30.0, 15.0, 4)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        product = started(Path(folder) / "data", running)
        run_id = product.launch(SCRIPT, gpus_per_node=2)
        product.wait_step(run_id, 20)
        time.sleep(settle_s)
        shares: dict[str, list[Shares]] = {watched: [] for watched in MOST}

        def act(watched: str) -> float:
            shares[watched].append(
                _watched_shares(product, run_id, VIEWERS if watched == "four viewers" else 0, seconds)
            )
            return sum(shares[watched][-1].values())

        in_turns({watched: lambda watched=watched: act(watched) for watched in MOST}, rounds)
        product.request("POST", f"/api/runs/{run_id}/stop")
        product.wait_state(run_id)
    for watched, most in MOST.items():
        for program, share in most.items():
            ours = Spread.of(each[program] for each in shares[watched])
            ratio = Spread.of(each[program] / share for each in shares[watched])
            what = f"processor time of the {program}, {watched}"
            yield Figure(what, f"{ours.median:.1%} of a core", "a limit", f"{share:.1%}", ratio, 1, "less")


def _watched_shares(product: Product, run_id: str, viewers: int, seconds: float) -> Shares:
    """Share of a core per program while so many look on; what changes with their number is over before."""
    with ExitStack() as watching:
        for _ in range(viewers):
            watching.enter_context(viewer(product, run_id))
        time.sleep(6)
        return shares_of_a_core(programs(product), seconds)


def programs(product: Product) -> dict[str, list[psutil.Process]]:
    """The processes of each program; `rankzero up` is counted with the dashboard."""
    own = product.processes()
    return {name: [process for process in own if module in process.cmdline()] for name, module in PROGRAMS.items()}


def shares_of_a_core(processes: dict[str, list[psutil.Process]], seconds: float) -> Shares:
    """Processor time of each program during the next seconds, divided by them."""
    before, began = {name: sum(map(processor_s, each)) for name, each in processes.items()}, time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return {name: (sum(map(processor_s, each)) - before[name]) / took for name, each in processes.items()}
