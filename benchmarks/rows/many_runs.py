"""Listing and searching ten thousand runs, against MLflow and trackio, and how that grows with their number.

Processor time for a window nobody asked for before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import numpy as np

from benchmarks.figures import Cost, Figure, Spread, in_turns, milliseconds, ratios
from benchmarks.peers.environment import is_installed, peer
from dashboard.service import overview as overviews
from dashboard.service.overview import Filter, LossCurves, RowRange, overview
from dashboard.service.service import Service
from dashboard.views.memory import spare_what_stays
from tests.dashboard.browsed import opened
from tests.dashboard.seeded_runs import seed_runs

WINDOWS = {
    "list, by urgency": (Filter(), RowRange()),
    "list, sorted by loss": (Filter(), RowRange(sort="loss")),
    "list, sorted by throughput": (Filter(), RowRange(sort="-throughput")),
    "search state:failed lr>0.0001": (Filter(search="state:failed lr>0.0001"), RowRange()),
    "search val/loss<0.5": (Filter(search="val/loss<0.5"), RowRange()),
    "search tag:paper out": (Filter(search="tag:paper out"), RowRange()),
}
GROWING = {"listing": "list, by urgency", "search": "search state:failed lr>0.0001"}
PEERS = {"mlflow": "MLflow", "trackio": "trackio"}
LIST, SEARCH = 0, 1
"""Rounds of a peer."""
AGAINST = {"list, by urgency": LIST, "search val/loss<0.5": SEARCH}
"""What peers do as well; trackio's page cannot search by a value."""
RUNS = 10_000
MOST_MS, LEAST_TIMES = 200, 5


def measure(quick: bool) -> Iterator[Figure | Cost]:
    """The 95th percentile of each window at the largest size, the peers beside it, and how two of them grow."""
    runs, times = (400, 2) if quick else (RUNS, 10)
    spare_what_stays()  # as the dashboard does at its first page
    growth = {act: Cost(act, "runs") for act in GROWING}
    for size in (runs // 1000, runs // 100, runs // 10):
        if size:
            with tempfile.TemporaryDirectory() as folder:
                note(growth, seeded(Path(folder), size), times, size)
    with tempfile.TemporaryDirectory() as folder:
        service = seeded(Path(folder) / "ours", runs)
        note(growth, service, times, runs)
        for name in WINDOWS:
            yield limited(name, [*windows_s(service, name, times, runs)], runs)
        if is_installed() or not quick:
            yield from against_peers(service, Path(folder), times, runs)
        service.close()
    yield from growth.values()


def seeded(folder: Path, runs: int) -> Service:
    """A store with that many runs; open."""
    service = opened(folder / "data")
    seed_runs(service.store, service.clock(), runs)
    return service


def note(growth: dict[str, Cost], service: Service, times: int, runs: int) -> None:
    """Add the medians of this size."""
    for act, name in GROWING.items():
        growth[act].seconds[runs] = float(np.median([*windows_s(service, name, times, runs)]))


def limited(name: str, seconds: list[float], runs: int) -> Figure:
    """The 95th percentile against the most that it may be."""
    median, p95 = (1000 * float(np.percentile(seconds, share)) for share in (50, 95))
    text, limit = f"{p95:.0f} ms (median {median:.0f} ms)", Spread.of([p95 / MOST_MS])
    return Figure(f"{name}, {runs:,} runs, p95", text, "a limit", f"{MOST_MS} ms", limit, 1, "less")


def against_peers(service: Service, folder: Path, times: int, runs: int) -> Iterator[Figure]:
    """The same window read by each, in turns."""
    with ExitStack() as open_until_end:
        acts: dict[str, Callable[[], float]] = {}
        for name in AGAINST:
            acts[name] = windows_s(service, name, None, runs).__next__
        for script, title in PEERS.items():
            process = open_until_end.enter_context(peer("find_runs.py", script, str(folder)))
            process.round(runs)
            for name, number in AGAINST.items():
                if (script, number) != ("trackio", SEARCH):
                    acts[f"{name} {title}"] = lambda process=process, number=number: process.round(number)
        seconds = in_turns(acts, times)
    for name in AGAINST:
        for title in PEERS.values():
            if theirs := seconds.get(f"{name} {title}"):
                ours, peers = (milliseconds(Spread.of(each).median) for each in (seconds[name], theirs))
                ratio = ratios(theirs, seconds[name])
                yield Figure(f"{name}, {runs:,} runs", ours, title, peers, ratio, LEAST_TIMES)


def windows_s(service: Service, name: str, times: int | None, runs: int) -> Iterator[float]:
    """Processor seconds of that many windows, one after another, with their curves."""
    run_filter, window = WINDOWS[name]
    for place in range(times) if times else count():
        overviews.CURVES = LossCurves()
        began = time.thread_time()
        overview(service.store, service.clock(), run_filter, window._replace(offset=place * 25 % runs))
        yield time.thread_time() - began
