"""What watching costs: the step rate of one script with Rankzero at work and with it frozen, in turn.

One unchanged script trains under Rankzero: launched, or started by hand behind `rankzero watch`. In every other slice
of time dashboard, worker and supervisor are stopped by SIGSTOP, so that the machine belongs to the script alone; what
piles up meanwhile is worked off in the slice after, and counts against us. Two whole runs, one under plain torchrun,
differ by more than what is to be measured here.
"""

from __future__ import annotations

import bisect
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from websockets.sync.client import ClientConnection, connect

from benchmarks.figures import Figure, ratios
from benchmarks.rows.start import BY_HAND, TORCHRUN, started
from tests.end_to_end.product import Product, safely, wait_for

SCRIPT = Path(__file__).parents[1] / "scripts" / "steps.py"
VIEWERS = 4
SHORT, LONG = ("--width", "256", "--batch", "64"), ("--width", "512", "--batch", "1024")
"""Sizes that make a step of some 5 and of some 100 ms where every rank has a core."""
CASES = {
    "short steps, every core busy": (SHORT, 2),
    "long steps, every core busy": (LONG, 2),
    "short steps, a core to spare": (SHORT, 1),
}
"""Step sizes, and ranks on two cores."""
WATCHED = "short steps, every core busy"
"""The case that is measured behind `rankzero watch`, too."""
SLICE_S, PAIRS, GROUP = 1.0, 120, 10
"""The rates of so many pairs together make one ratio: of a single pair it is 5 to 10 % off, of ten a third of that."""
LEAST = 0.98
CWD = "by-hand"


def measure(quick: bool) -> Iterator[Figure]:
    """Steps of two lengths, of ranks that share the machine's cores with us and with four viewers."""
    cases = [(name, *case, launched) for name, case in CASES.items()]
    for name, sizes, ranks, start in [*cases, (f"{WATCHED}, watched", *CASES[WATCHED], watched)]:
        with tempfile.TemporaryDirectory() as folder:
            slices, steps = slices_of_a_run(start, sizes, ranks, quick, Path(folder))
        pairs = [(rate(steps, *busy), rate(steps, *frozen)) for busy, frozen in slices]
        groups = [pairs[at : at + GROUP] for at in range(0, len(pairs), GROUP)]
        ours, theirs = ([statistics.mean(pair[at] for pair in group) for group in groups] for at in (0, 1))
        texts = [f"{statistics.median(each):.1f} steps/s" for each in (ours, theirs)]
        what = f"step rate with everything on, {name}"
        yield Figure(what, texts[0], "Rankzero frozen", texts[1], ratios(ours, theirs), LEAST)


Slice = tuple[float, float]
Slices = tuple[list[tuple[Slice, Slice]], list[float]]


Start = Callable[[Product, Path, int, Sequence[str]], str]
"""(product, folder, ranks, arguments): start the script; returns the run's id."""


def launched(product: Product, _: Path, ranks: int, arguments: Sequence[str]) -> str:
    """Launch the script."""
    return product.launch(SCRIPT, gpus_per_node=ranks, args=[*arguments])


def watched(product: Product, folder: Path, ranks: int, arguments: Sequence[str]) -> str:
    """Start the script by hand, watched."""
    (folder / CWD).mkdir()
    command = [TORCHRUN, "--standalone", f"--nproc-per-node={ranks}", str(SCRIPT), *arguments]
    argv = [sys.executable, "-P", "-m", "cli.main", "watch", "--", *command]
    env = product.env | BY_HAND | {"RANKZERO_DATA": str(product.data)}
    with (folder / "watch.log").open("wb") as log:
        subprocess.Popen(argv, cwd=folder / CWD, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return str(wait_for(lambda: product.get("/api/runs"), "the watched run to appear")[0]["id"])


def slices_of_a_run(start: Start, sizes: Sequence[str], ranks: int, quick: bool, folder: Path) -> Slices:
    """The slices with and without us, and the time of each step of rank 0."""
    settle_s, pairs = (5.0, 4) if quick else (40.0, PAIRS)
    with ExitStack() as running:
        product = started(folder / "data", running)
        arguments = ["--seconds", "3600", *sizes, "--out", str(folder / "rate.json")]
        run_id = start(product, folder, ranks, arguments)
        product.wait_state(run_id, "running")
        for _ in range(VIEWERS):
            running.enter_context(viewer(product, run_id))
        time.sleep(settle_s)
        slices = [one_pair(product, SLICE_S, frozen_first=bool(n % 2)) for n in range(pairs)]
        product.request("POST", f"/api/runs/{run_id}/stop")
        assert product.wait_state(run_id)["state"] == "stopped"
        return slices, step_times(folder)


@contextmanager
def viewer(product: Product, run_id: str) -> Iterator[None]:
    """Read what the dashboard sends to a run's page, as a browser does."""
    address = f"{product.url.replace('http', 'ws')}/api/live?run={run_id}"
    header = {"Authorization": f"Bearer {product.token()}"}
    with connect(address, additional_headers=header, max_size=None, proxy=None, close_timeout=2) as socket:
        socket.send(json.dumps({"type": "subscribe", "since": {}}))
        reading = threading.Thread(target=_read, args=(socket,))
        reading.start()
        yield
    reading.join()


def _read(socket: ClientConnection) -> None:
    for _ in socket:
        pass


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
    """The dashboard, the worker and the supervisor; or the front and the companion of a watched command."""
    ours = {"cli.main", "worker", "worker.attempt.supervisor", "cli.commands.anywhere.companion"}
    fronts = [one for one in psutil.process_iter() if "watch" in safely(one.cmdline, ()) and _is_beside(one, product)]
    return [*fronts, *(process for process in product.processes() if ours & set(process.cmdline()))]


def _is_beside(process: psutil.Process, product: Product) -> bool:
    environment: dict[str, str] = safely(process.environ, {})
    return environment.get("RANKZERO_DATA") == str(product.data)


def step_times(folder: Path) -> list[float]:
    """Wall times of rank 0's steps, from its event file."""
    (file,) = [file for place in ("data/runs", CWD) for file in (folder / place).rglob("*tfevents*")]
    events = LegacyEventFileLoader(str(file)).Load()
    return [e.wall_time for e in events for v in e.summary.value if v.tag == "train/s0"]


def rate(steps: list[float], began: float, ended: float) -> float:
    """Steps per second between two times."""
    return (bisect.bisect(steps, ended) - bisect.bisect(steps, began)) / (ended - began)
