"""What a worker and a server take at rest, and the worker while a script logs a thousand points a second."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil

from benchmarks.figures import Figure, Spread
from benchmarks.rows.start import started
from tests.end_to_end.product import Product

SCRIPT = Path(__file__).parents[1] / "scripts" / "pulse.py"
MOST_MB = {"worker": 60, "server": 200}
MOST_PERCENT = {"worker": 0.5, "worker at 1,000 points/s": 5}
COMMANDS = {"worker": "worker", "server": "dashboard"}
PER_SECOND = 1000


def measure(quick: bool) -> Iterator[Figure]:
    """Resident memory, and processor time in per cent of a core over several intervals."""
    interval_s, intervals = (2.0, 2) if quick else (15.0, 4)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        product = started(Path(folder) / "data", running)
        processes = {name: _process(product, command) for name, command in COMMANDS.items()}
        time.sleep(interval_s)
        shares = [_shares(processes, interval_s) for _ in range(intervals)]
        memory = {name: process.memory_info().rss / 1e6 for name, process in processes.items()}
        busy = _while_logging(product, folder, processes, interval_s, intervals)
    for name, most in MOST_MB.items():
        yield _limit(f"memory of the {name} at rest", [memory[name]], "MB", most)
    yield _limit("worker at rest", [each["worker"] for each in shares], "% of a core", MOST_PERCENT["worker"])
    name = "worker at 1,000 points/s"
    yield _limit(name, [each["worker"] for each in busy], "% of a core", MOST_PERCENT[name])


def _process(product: Product, command: str) -> psutil.Process:
    process = product.child(command)
    assert process, f"no process of {command}"
    return process


def _shares(processes: dict[str, psutil.Process], interval_s: float) -> dict[str, float]:
    """Per cent of a core that each takes meanwhile."""
    before = {name: sum(process.cpu_times()[:2]) for name, process in processes.items()}
    time.sleep(interval_s)
    return {
        name: 100 * (sum(process.cpu_times()[:2]) - before[name]) / interval_s for name, process in processes.items()
    }


def _while_logging(
    product: Product, folder: str, processes: dict[str, psutil.Process], interval_s: float, intervals: int
) -> list[dict[str, float]]:
    seconds = interval_s * (intervals + 1)
    arguments = [f"{folder}/times.json", "--seconds", str(seconds), "--per-second", str(PER_SECOND)]
    run_id = product.launch(SCRIPT, gpus_per_node=1, args=arguments)
    product.wait_step(run_id, int(PER_SECOND * interval_s / 2))
    shares = [_shares(processes, interval_s) for _ in range(intervals - 1)]
    assert product.wait_state(run_id)["state"] == "succeeded"
    return shares


def _limit(what: str, values: list[float], unit: str, most: float) -> Figure:
    spread = Spread.of(value / most for value in values)
    return Figure(what, f"{Spread.of(values).median:.3g} {unit}", "a limit", f"{most:g} {unit}", spread, 1, "less")
