"""Comparing fifty runs of a million points: reading on the server, and from the click to the charts in Chromium.

MLflow and trackio read a hundredth of the points: to fill in a million for each run would take them an hour.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import numpy as np
from playwright.sync_api import Page
from sqlalchemy import insert

from benchmarks.figures import Figure, Spread, in_turns, milliseconds, ratios
from benchmarks.peers.environment import is_installed, peer
from db.attempts import attempt_queries
from db.engine import Store
from db.metrics import curves
from db.metrics.columns import Columns, extremes
from db.metrics.points import BUCKET_POINTS, CHUNK_POINTS
from db.models import Chunk, Series
from tests.dashboard.browsed import browsed, opened
from tests.dashboard.seeded_store import Seed
from tests.end_to_end.browsers import chromium

RUNS = 50
MOST_READ_MS, MOST_PAINT_MS = 200, 1000
PEERS = {"mlflow": "MLflow", "trackio": "trackio"}
FEWER, LEAST_TIMES = 100, 5
NAMES = ("train/loss", "val/loss")
FOLLOW = """address => {
    history.pushState(null, '', address);
    dispatchEvent(new PopStateEvent('popstate', { state: null }));
    return performance.now();
}"""
DRAWN = """() => {
    const hosts = [...document.querySelectorAll('*')].map((element) => element.shadowRoot);
    const cards = hosts.flatMap((root) => [...root?.querySelectorAll('.compare .card') ?? []])
        .filter((card) => card.getBoundingClientRect().top < innerHeight);
    return cards.length > 1 && cards.every((card) => card.querySelector('.value').textContent) && performance.now();
}"""


def measure(quick: bool) -> Iterator[Figure]:
    """Of a training and a validation loss of every run; the first of each is left out."""
    runs, points, loads = (3, 10_000, 2) if quick else (RUNS, 1_000_000, 12)
    with tempfile.TemporaryDirectory() as folder:
        service = opened(Path(folder) / "data")
        ids = seed(service.store, service.clock(), runs, points)
        reads_ms = [timed(lambda: read(service.store, ids, NAMES)) for _ in range(loads + 1)][1:]
        if is_installed() or not quick:
            yield from against_peers(service.store, ids, Path(folder), points // FEWER, min(5, loads))
        profile = Path(folder) / "profile"
        with browsed(service) as dashboard, chromium(profile) as browser, browser.visit(1440) as visit:
            page = visit.new_page()
            page.goto(dashboard.entrance)
            paints_ms = [open_page(page, dashboard.url, ids) for _ in range(loads + 1)][1:]
    what = f"comparison of {runs} runs of {points:,} points"
    for name, taken, most in (("read", reads_ms, MOST_READ_MS), ("painted", paints_ms, MOST_PAINT_MS)):
        spread = Spread.of(each / most for each in taken)
        yield Figure(f"{what}, {name}", f"{np.median(taken):.0f} ms", "a limit", f"{most} ms", spread, 1, "less")


def against_peers(store: Store, ids: list[str], folder: Path, points: int, rounds: int) -> Iterator[Figure]:
    """One series of all runs, in turns, in processor seconds."""
    with ExitStack() as open_until_end:
        acts: dict[str, Callable[[], float]] = {"ours": lambda: processor_s(lambda: read(store, ids, NAMES[:1]))}
        for name, title in PEERS.items():
            process = open_until_end.enter_context(peer("compare_runs.py", name, str(folder), str(len(ids))))
            process.round(max(1000, points))
            numbers = count()
            acts[title] = lambda process=process, numbers=numbers: process.round(next(numbers))
        seconds = in_turns(acts, rounds)
    for title in PEERS.values():
        ours, theirs = (milliseconds(Spread.of(seconds[name]).median) for name in ("ours", title))
        against = f"{title} with {max(1000, points):,} points each"
        ratio = ratios(seconds[title], seconds["ours"])
        yield Figure(f"a series of {len(ids)} runs, read", ours, against, theirs, ratio, LEAST_TIMES)


def seed(store: Store, now: float, runs: int, points: int) -> list[str]:
    """Ended runs with both series; returns their ids."""
    made, luck = Seed(store, now), np.random.default_rng(0)
    made.node("gpu-1", 1)
    ids = []
    for number in range(runs):
        label = f"run {number:02}"
        ids.append(made.launch(label, 9_000, gpus_per_node=1, lr=10.0 ** -(2 + number % 4), seed=number))
        made.start(label, 8_990)
        fence = attempt_queries.attempts(store, ids[-1])[-1].fence
        for name in NAMES:
            step = np.arange(points, dtype=float)
            loss = 0.2 + 3 * np.exp(-(4 + luck.normal()) * step / points) + luck.normal(0, 0.05, points)
            write(store, fence, name, np.array([step, loss, now - 8_000 + step * 7_000 / points]))
        made.report(label, "succeeded", 100, exit_code=0)
    return ids


def write(store: Store, fence: int, name: str, columns: Columns) -> None:
    """Store a series with all its levels, as `db.metrics.points` does point by point."""
    steps, values, walls = columns
    with store.write() as session:
        row = Series(
            fence=fence, node_rank=0, source="events", tag=name, count=len(steps), first_step=int(steps[0]),
            last_step=int(steps[-1]), first_wall=walls[0], last_wall=walls[-1], last_value=values[-1],
            last_number=values[-1], lowest=float(values.min()), highest=float(values.max()),
            finite_sum=float(values.sum()), finite_count=len(values),
        )  # fmt: skip
        session.add(row)
        session.flush()
        level = 0
        while columns.shape[1]:
            session.execute(insert(Chunk), [chunk | {"series_id": row.id, "level": level} for chunk in chunks(columns)])
            whole = columns[:, : columns.shape[1] // CHUNK_POINTS * CHUNK_POINTS]
            columns = whole[:, extremes(whole[1], BUCKET_POINTS)] if whole.shape[1] else whole
            level += 1


def chunks(columns: Columns) -> list[dict[str, object]]:
    """The rows of one level."""
    rows = []
    for seq, start in enumerate(range(0, columns.shape[1], CHUNK_POINTS)):
        part = columns[:, start : start + CHUNK_POINTS]
        packed = part[0].astype("<i8").tobytes() + part[1:].astype("<f8").tobytes()
        first, last = int(part[0].min()), int(part[0].max())
        rows.append({"seq": seq, "count": part.shape[1], "step_min": first, "step_max": last, "points": packed})
    return rows


def read(store: Store, runs: list[str], names: tuple[str, ...]) -> None:
    """The curves as the page asks for them."""
    curves.curves_of_runs(store, runs, names, 400)


def open_page(page: Page, url: str, runs: list[str]) -> float:
    """Open the comparison as a link of the Runs page does; returns the milliseconds until its charts have values."""
    page.goto(url)
    page.get_by_role("link", name="run 00").wait_for()
    began = page.evaluate(FOLLOW, f"compare?runs={','.join(runs)}")
    return float(page.wait_for_function(DRAWN, polling="raf").json_value()) - float(began)


def timed(act: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def processor_s(act: Callable[[], object]) -> float:
    """Processor seconds of this process."""
    began = time.process_time()
    act()
    return time.process_time() - began
