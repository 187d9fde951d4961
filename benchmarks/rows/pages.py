"""From the click on a page's name to its content in the open dashboard, with many runs, and a first visit's bytes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from playwright.sync_api import Page

from benchmarks.figures import Figure, Spread
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_runs import QUEUED, seed_runs
from tests.end_to_end.browsers import Visit, chromium

FIND = """const find = () => { for (const element of document.querySelectorAll('*'))
  if (element.shadowRoot?.querySelector('.runs')) return element.shadowRoot; };
const links = () => [...(find()?.querySelectorAll('td.name a') ?? [])];"""
HAS_ROWS = f"(name) => {{ {FIND} return links().some((link) => link.textContent.includes(name)); }}"
SHIFTS = """() => { window.shifted = 0; new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.shifted += entry.value;
}).observe({ type: 'layout-shift', buffered: true }); }"""
BYTES = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .reduce((sum, entry) => sum + entry.transferSize, 0)"""
MOST_MS, MOST_SHIFT, MOST_MB = 300, 0.1, 5


def measure(quick: bool) -> Iterator[Figure]:
    """Milliseconds of a warm page, layout shift while it changes, and MB over the network with an empty cache."""
    runs, clicks = (200, 2) if quick else (10_000, 20)
    with tempfile.TemporaryDirectory() as folder:
        service = opened(Path(folder) / "data")
        seed_runs(service.store, service.clock(), runs)
        with (
            browsed(service) as dashboard,
            chromium(Path(folder) / "profile") as browser,
            browser.visit(1440) as visit,
        ):
            megabytes = _first_visit(visit, dashboard, runs)
            page = visit.new_page()
            page.goto(dashboard.entrance)
            _wait(page, runs)
            page.evaluate(SHIFTS)
            taken_ms = [_clicked(page, runs) for _ in range(clicks + 1)][1:]
            shift = page.evaluate("window.shifted") / (clicks + 1)
    spread = Spread.of(each / MOST_MS for each in taken_ms)
    what = f"click to the content, Runs page of {runs:,}"
    yield Figure(what, f"{Spread.of(taken_ms).median:.0f} ms", "a limit", f"{MOST_MS} ms", spread, 1, "less")
    p95 = float(np.percentile(taken_ms, 95))
    limit = Spread.of([p95 / MOST_MS])
    yield Figure(f"{what}, p95", f"{p95:.0f} ms", "a limit", f"{MOST_MS} ms", limit, 1, "less")
    limit = Spread.of([shift / MOST_SHIFT])
    yield Figure("layout shift of it", f"{shift:.3f}", "a limit", f"{MOST_SHIFT}", limit, 1, "less")
    limit = Spread.of([megabytes / MOST_MB])
    yield Figure(
        "bytes of a first visit", f"{megabytes:.1f} MB", "a limit", f"{MOST_MB} MB", limit, 1, "less"
    )


def _first_visit(visit: Visit, dashboard: Browsed, runs: int) -> float:
    page = visit.new_cold_page()
    page.goto(dashboard.entrance)
    _wait(page, runs)
    return float(page.evaluate(BYTES)) / 1e6


def _clicked(page: Page, runs: int) -> float:
    """Milliseconds from the click on the page's name, within the open dashboard."""
    page.get_by_role("link", name="Nodes").click()
    page.wait_for_url("**/nodes")
    page.wait_for_timeout(500)
    link = page.get_by_role("link", name="Runs")
    link.wait_for()
    began = time.perf_counter()
    link.click()
    _wait(page, runs)
    return 1000 * (time.perf_counter() - began)


def _wait(page: Page, runs: int) -> None:
    """Until the newest run that is not queued is in the page."""
    page.wait_for_function(HAS_ROWS, arg=f" {runs - QUEUED}", timeout=120_000)
