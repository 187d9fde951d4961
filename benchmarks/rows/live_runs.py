"""A thousand nodes with two hundred live runs of 20 points a second, on one core, and how a run's cost grows with them.

Workers are simulated (simulated_worker.py). What counts is the processor time of the server, which shares its core with
nothing of ours; while it falls behind, the load is what it would have taken to keep up.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.cores import one_core, processor_s
from benchmarks.figures import Cost, Figure, Spread, milliseconds
from benchmarks.served import SPEC, dashboard
from benchmarks.simulated_worker import HEARTBEAT_S, UPLOAD_EVERY_S, SimulatedWorker
from dashboard.app.server import most_connections
from dashboard.service.service import Service
from dashboard.settings import Settings
from db.nodes.node_reports import register_node
from db.runs import run_requests
from domain.messages import Device, NodeFacts

MOST_GROWTH = 1.2
STARTING = 8
"""Workers that start at the same time."""
IDLE_S, SETTLING_S = 5.0, 2 * UPLOAD_EVERY_S


@dataclass(frozen=True)
class Load:
    """What a number of nodes and live runs took of the server, interval by interval."""

    idle: float
    """The share of a core before the first worker came."""
    shares: list[float]
    """Of a core, as much as all that was to be sent would have taken."""
    round_s: float
    """95th percentile of how long a run's upload of five seconds took."""

    def run_ms(self, runs: int) -> list[float]:
        """Milliseconds of processor time for a second of one run."""
        return [1000 * (share - self.idle) / runs for share in self.shares]


def measure(quick: bool) -> Iterator[Figure | Cost]:
    """Shares of a core; each size has a server of its own, with a node for each run."""
    nodes, sizes, intervals = (8, (2, 4), 1) if quick else (1000, (10, 50, 200), 3)
    interval_s = UPLOAD_EVERY_S if quick else 4 * UPLOAD_EVERY_S
    loads = {runs: loaded(runs, runs, interval_s, intervals) for runs in sizes}
    few, many = loads[sizes[0]].run_ms(sizes[0]), loads[sizes[-1]].run_ms(sizes[-1])
    whole = loaded(nodes, sizes[-1], interval_s, intervals)
    text = f"{100 * Spread.of(whole.shares).median:.0f} % of a core; a run's upload {milliseconds(whole.round_s)}, p95"
    what = f"{nodes:,} nodes and {sizes[-1]} live runs of 20 points/s"
    yield Figure(what, text, "a limit", "one core", Spread.of(whole.shares), 1, "less")
    text, other = (f"{Spread.of(each).median:.3g} ms a second" for each in (many, few))
    ratio = Spread.of(each / Spread.of(few).median for each in many)
    yield Figure(f"cost of one of {sizes[-1]} live runs", text, f"one of {sizes[0]}", other, ratio, MOST_GROWTH, "less")
    cost = Cost("a second of a live run", "runs")
    cost.seconds |= {runs: Spread.of(load.run_ms(runs)).median / 1000 for runs, load in loads.items()}
    yield cost


def loaded(nodes: int, runs: int, interval_s: float, intervals: int) -> Load:
    """Serve that many nodes, of which some have a run that logs."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        tokens = fill(data, nodes, runs)
        with ExitStack() as serving:
            with one_core():
                process, url = serving.enter_context(dashboard(data))
            time.sleep(2)
            idle = share(process, min(IDLE_S, interval_s))
            port = int(url.rpartition(":")[2])
            return asyncio.run(busy(process, port, tokens, runs, idle, interval_s, intervals))


def fill(data: Path, nodes: int, runs: int) -> list[str]:
    """Nodes with a slot each, and runs that have one of them; returns the nodes' tokens."""
    service = Service.open(Settings(data=data))
    now, device = service.clock(), Device(id="cpu:0", kind="cpu", name="CPU slot")
    tokens = []
    for number in range(nodes):
        facts = NodeFacts(name=f"n{number:04}", instance_id="i", hostname="h", address="10.0.0.1", devices=[device])
        tokens.append(register_node(service.store, facts, None, now).token)
    for number in range(runs):
        run_requests.submit(service.store, SPEC.model_copy(update={"seed": number}), service.clock())
    service.schedule()
    service.close()
    return tokens


def share(process: psutil.Process, seconds: float) -> float:
    """Of a core that it takes meanwhile."""
    before = processor_s(process)
    time.sleep(seconds)
    return (processor_s(process) - before) / seconds


async def busy(
    process: psutil.Process,
    port: int,
    tokens: list[str],
    runs: int,
    idle: float,
    interval_s: float,
    intervals: int,
) -> Load:
    """Let all nodes work for these intervals."""
    most_connections()  # raises the limit of open files for this process as well
    luck = random.Random(7)
    workers = [SimulatedWorker(port, token, luck) for token in tokens]
    turns = asyncio.Semaphore(STARTING)

    async def start(worker: SimulatedWorker) -> None:
        async with turns:
            await worker.start()

    try:
        await asyncio.gather(*map(start, reversed(workers)))  # those with runs last: placement begins at the first
        await asyncio.sleep(max(SETTLING_S, HEARTBEAT_S))
        for worker in workers:
            worker.slow_s.clear()
        shares = []
        for _ in range(intervals):
            spent_s, sent, began = processor_s(process), uploads(workers), time.monotonic()
            await asyncio.sleep(interval_s)
            took_s = time.monotonic() - began
            done = (uploads(workers) - sent) / (runs * took_s / UPLOAD_EVERY_S)
            shares.append((processor_s(process) - spent_s) / took_s / min(1.0, done))
        round_s = float(np.percentile([s for worker in workers for s in worker.slow_s], 95))
        return Load(idle, shares, round_s)
    finally:
        for worker in workers:
            worker.close()


def uploads(workers: list[SimulatedWorker]) -> int:
    return sum(worker.uploads for worker in workers)
