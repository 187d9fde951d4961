"""How the cost of storing the points of one run grows with their number."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.figures import Cost
from benchmarks.rows.ingestion import Ours
from benchmarks.served import served


def measure(quick: bool) -> Iterator[Cost]:
    """Seconds of the server's processor time until all are stored, so that a busy machine does not blur them."""
    points = 10_000 if quick else 1_000_000
    sizes = [points // 1000, points // 100, points // 10, points]
    growth = Cost("storing a run's points", "points")
    with tempfile.TemporaryDirectory() as folder, served(Path(folder) / "data", 1 + len(sizes)) as site:
        Ours(site, site.fences[:1]).send(points // 10)  # the first request loads what all need
        for fence, size in zip(site.fences[1:], sizes, strict=True):
            before = processor_s(site.process.pid)
            Ours(site, [fence]).send(size)
            growth.seconds[size] = processor_s(site.process.pid) - before
    yield growth


def processor_s(pid: int) -> float:
    """Of all threads that live, exact to far less than a tick of the clock."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
