"""How soon the dashboard answers where somebody else keeps all cores busy: its start, and a list of runs.

The others are loops of Python, each in a session of its own: where the kernel divides the cores by session, that takes
most from us. A run of ours beside them makes the dashboard stand back.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import psutil

from benchmarks.figures import Figure, Spread
from benchmarks.rows.overhead import SCRIPT, SHORT, viewer
from benchmarks.rows.submissions import p95
from tests.end_to_end.product import WITHOUT_TLS, Product

PER_CORE = 4
NAME = "beside four busy loops of others per core"
MOST_START_S, MOST_LIST_S = 40.0, 1.0
PAUSE_S = 0.1


def measure(quick: bool) -> Iterator[Figure]:
    """Seconds from `rankzero up` to its first answer, and the 95th percentile of a list, without and with ranks."""
    rounds, lists = (1, 5) if quick else (3, 60)
    starts, alone, with_ranks = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
            product = Answering(Path(folder) / "data")
            running.callback(product.clean_up)
            with busy_loops():
                starts.append(seconds_to_start(product))
                running.callback(product.stop)
                alone.append(p95(listings(product, lists)))
            run_id = training(product, Path(folder), running)
            with busy_loops():
                with_ranks.append(p95(listings(product, lists)))
            product.request("POST", f"/api/runs/{run_id}/stop")
            product.wait_state(run_id)
    yield _limit(f"rankzero up to its first answer, {NAME}", starts, MOST_START_S)
    yield _limit(f"list, {NAME}, p95", alone, MOST_LIST_S)
    yield _limit(f"list, {NAME} and ranks of ours, p95", with_ranks, MOST_LIST_S)


class Answering(Product):
    """A product whose start is over when its dashboard answers, whatever its node does by then."""

    def wait_ready(self) -> None:
        """Leave the node alone."""


def seconds_to_start(product: Product) -> float:
    """From the command to the first list."""
    began = time.perf_counter()
    product.start()
    product.get("/api/runs")
    return time.perf_counter() - began


def training(product: Product, folder: Path, running: ExitStack) -> str:
    """A run of two ranks that a page watches; returns its id when it steps."""
    arguments = ["--seconds", "3600", *SHORT, "--out", str(folder / "rate.json")]
    run_id = product.launch(SCRIPT, gpus_per_node=2, args=arguments)
    product.wait_step(run_id, 20)
    running.enter_context(viewer(product, run_id))
    return run_id


def listings(product: Product, number: int) -> list[float]:
    """Seconds that each list takes a client who has its connection."""
    headers = {"Authorization": f"Bearer {product.token()}"}
    seconds = []
    with httpx2.Client(base_url=product.url, headers=headers, timeout=60, **WITHOUT_TLS) as client:
        for _ in range(number):
            began = time.perf_counter()
            client.get("/api/runs").raise_for_status()
            seconds.append(time.perf_counter() - began)
            time.sleep(PAUSE_S)
    return seconds


@contextmanager
def busy_loops() -> Iterator[None]:
    """Keep every core busy several times over, as programs of somebody else do."""
    argv = [sys.executable, "-c", "while True: pass"]
    number = PER_CORE * (psutil.cpu_count() or 1)
    loops = [subprocess.Popen(argv, start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _limit(what: str, seconds: list[float], most: float) -> Figure:
    ratio = Spread.of(each / most for each in seconds)
    return Figure(what, f"{Spread.of(seconds).median:.3g} s", "a limit", f"{most:g} s", ratio, 1, "less")
