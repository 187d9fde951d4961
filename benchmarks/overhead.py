"""What watching costs: the step rate of one script with Rankzero at work and with it frozen, in turn.

    .venv/bin/python benchmarks/overhead.py --pairs 12 --slice 4

One unchanged 2-rank script trains under Rankzero. In every other slice of time dashboard, worker and supervisor are
stopped by SIGSTOP, so that the machine belongs to the script alone; what piles up meanwhile is worked off in the
slice after, and counts against us. Two whole runs, one under plain torchrun, differ by more than what is to be
measured here. Prints the ratio (with / without) of each pair and the median; 1.00 means nothing is lost.

A host that takes its processors away blurs the clock, not the processor time: so the time that dashboard, worker and
supervisor take is printed against that of the ranks. Where ranks are in lockstep on cores that are all busy, each
second of ours may stop every rank, so the worst case is 1 - ours / (ours + one rank's).
"""

from __future__ import annotations

import argparse
import bisect
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import psutil
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from tests.end_to_end.product import Product

SCRIPT = Path(__file__).parent / "scripts" / "steps.py"
SETTLE_S = 15.0
COUNTED_S = 40.0
"""Over which the processor time is counted, with nothing frozen."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--slice", type=float, default=4.0, help="seconds")
    parser.add_argument("--batch", type=int, default=64, help="a larger batch makes a longer step")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        slices, steps, spent = measure(options, Path(folder))
    ratios = [rate(steps, *busy) / rate(steps, *frozen) for busy, frozen in slices]
    print(f"{len(steps) / (steps[-1] - steps[0]):.1f} steps/s;", " ".join(f"{r:.3f}" for r in ratios))
    low, _, high = statistics.quantiles(ratios)
    print(f"median ratio {statistics.median(ratios):.3f} (quartiles {low:.3f} and {high:.3f})")
    one_rank_s = spent.ranks_s / options.ranks
    print(
        f"processor time: ours {spent.ours_s:.2f} s, ranks {spent.ranks_s:.1f} s: "
        f"{spent.ours_s / (spent.ours_s + spent.ranks_s):.2%} of all, "
        f"worst case ratio {1 - spent.ours_s / (spent.ours_s + one_rank_s):.3f}"
    )


@dataclass
class ProcessorTime:
    """Seconds that dashboard, worker and supervisor took, and those of the ranks, while all of them ran."""

    ours_s: float = 0.0
    ranks_s: float = 0.0


def measure(
    options: argparse.Namespace, folder: Path
) -> tuple[list[tuple[Slice, Slice]], list[float], ProcessorTime]:
    """The slices with and without us, the time of each step of rank 0, and the processor time."""
    product = Product(folder / "data", slots=options.ranks)
    product.start()
    seconds = SETTLE_S + COUNTED_S + 2 * options.pairs * options.slice
    arguments = ["--seconds", str(seconds), "--batch", str(options.batch), "--out", str(folder / "rate.json")]
    try:
        run_id = product.launch(SCRIPT, gpus_per_node=options.ranks, args=arguments)
        product.wait_state(run_id, "running")
        time.sleep(SETTLE_S)
        began = processor_time(product, run_id)
        time.sleep(COUNTED_S)
        counted = processor_time(product, run_id)
        slices = [one_pair(product, options.slice, frozen_first=bool(n % 2)) for n in range(options.pairs)]
        ended = product.wait_state(run_id, timeout_s=300)
        assert ended["state"] == "succeeded", ended
        spent = ProcessorTime(counted.ours_s - began.ours_s, counted.ranks_s - began.ranks_s)
        return slices, step_times(folder), spent
    finally:
        product.stop()


Slice = tuple[float, float]


def one_pair(product: Product, seconds: float, frozen_first: bool) -> tuple[Slice, Slice]:
    """(busy, frozen); which comes first changes, so that a drift of the machine favours neither."""
    if frozen_first:
        frozen = frozen_slice(product, seconds)
        return one_slice(seconds), frozen
    busy = one_slice(seconds)
    return busy, frozen_slice(product, seconds)


def frozen_slice(product: Product, seconds: float) -> Slice:
    with frozen(product):
        return one_slice(seconds)


def one_slice(seconds: float) -> Slice:
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


@contextmanager
def frozen(product: Product) -> Iterator[None]:
    """Everything of ours stands still; torchrun and the ranks go on."""
    stopped = our_processes(product)
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            process.send_signal(signal.SIGCONT)


def our_processes(product: Product) -> list[psutil.Process]:
    """The dashboard, the worker and the supervisor."""
    ours = {"cli.main", "worker", "worker.attempt.supervisor"}
    return [process for process in product.processes() if ours & set(process.cmdline())]


def processor_time(product: Product, run_id: str) -> ProcessorTime:
    """Seconds taken until now."""
    ranks = product.ranks(run_id).values()
    return ProcessorTime(sum(map(cpu_s, our_processes(product))), sum(map(cpu_s, ranks)))


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def step_times(folder: Path) -> list[float]:
    """Wall times of rank 0's steps, from its event file."""
    (file,) = (folder / "data" / "runs").rglob("*tfevents*")
    events = LegacyEventFileLoader(str(file)).Load()
    return [e.wall_time for e in events for v in e.summary.value if v.tag == "train/s0"]


def rate(steps: list[float], began: float, ended: float) -> float:
    """Steps per second between two times."""
    return (bisect.bisect(steps, ended) - bisect.bisect(steps, began)) / (ended - began)


if __name__ == "__main__":
    main()
