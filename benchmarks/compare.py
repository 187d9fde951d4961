"""Opening a comparison of many long runs: reading on the server, and from the click to the last chart in Chromium.

    .venv/bin/python benchmarks/compare.py --runs 50 --points 1000000 --loads 20

Every run has a training and a validation loss of that many points. Prints the median and the 95th percentile in
milliseconds.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from playwright.sync_api import Page
from sqlalchemy import insert

sys.path.insert(0, str(Path(__file__).parent.parent))

from db.engine import Store
from db.metrics import many_curves, run_results
from db.metrics.columns import Columns, extremes
from db.metrics.points import BUCKET_POINTS, CHUNK_POINTS
from db.models import Chunk, Series
from db.queries import run_queries
from tests.dashboard.browsed import browsed, opened
from tests.dashboard.seeded_store import Seed
from tests.end_to_end.browsers import chromium

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--loads", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service = opened(Path(folder) / "data")
        runs = seed(service.store, service.clock(), options.runs, options.points)
        report("read one series", options.loads, lambda: read(service.store, runs, NAMES[:1]))
        report("read both series", options.loads, lambda: read(service.store, runs, NAMES))
        report("read the results", options.loads, lambda: run_results.results(service.store, runs))
        profile = Path(folder) / "profile"
        with browsed(service) as dashboard, chromium(profile) as browser, browser.visit(1440) as visit:
            page = visit.new_page()
            page.goto(dashboard.entrance)
            taken = [open_page(page, dashboard.url, runs) for _ in range(options.loads + 1)]
            print_times("from the Runs page to all charts in view", taken[1:])


def seed(store: Store, now: float, runs: int, points: int) -> list[str]:
    """Ended runs with both series; returns their ids."""
    made, luck = Seed(store, now), np.random.default_rng(0)
    made.node("gpu-1", 1)
    ids = []
    for number in range(runs):
        label = f"run {number:02}"
        ids.append(made.launch(label, 9_000, gpus_per_node=1, lr=10.0 ** -(2 + number % 4), seed=number))
        made.start(label, 8_990)
        fence = run_queries.attempts(store, ids[-1])[-1].fence
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
            session.execute(
                insert(Chunk), [chunk | {"series_id": row.id, "level": level} for chunk in chunks(columns)]
            )
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
        rows.append(
            {"seq": seq, "count": part.shape[1], "step_min": first, "step_max": last, "points": packed}
        )
    return rows


def read(store: Store, runs: list[str], names: tuple[str, ...]) -> None:
    """The curves as the page asks for them."""
    many_curves.curves(store, runs, names, 400)


def open_page(page: Page, url: str, runs: list[str]) -> float:
    """Open the comparison as a link of the Runs page does; returns the milliseconds until its charts have values."""
    page.goto(url)
    page.get_by_role("link", name="run 00").wait_for()
    began = page.evaluate(FOLLOW, f"compare?runs={','.join(runs)}")
    return float(page.wait_for_function(DRAWN, polling="raf").json_value()) - float(began)


def report(label: str, times: int, act: Callable[[], object]) -> None:
    """Print how long it takes; the first time is left out."""
    act()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(1000 * (time.perf_counter() - began))
    print_times(label, taken)


def print_times(label: str, taken: list[float]) -> None:
    """Print the median and the 95th percentile of milliseconds."""
    print(f"{label}: median {np.median(taken):.0f} ms, p95 {np.percentile(taken, 95):.0f} ms")


if __name__ == "__main__":
    main()
