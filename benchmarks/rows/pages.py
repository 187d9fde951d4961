"""From the click on a page's name to its content in the open dashboard, with many runs, and a first visit's bytes.

The peer is a page of Streamlit alone that shows the same runs in its own table (scripts/streamlit_pages.py)."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from playwright.sync_api import Page

from benchmarks.figures import Figure, Spread, in_turns, ratios
from benchmarks.streamlit_server import streamlit
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
HAS_TABLE = "() => document.querySelector('[data-testid=stDataFrame] canvas td') !== null"
HAS_FORM = "() => document.querySelector('.st-key-launch_now') && document.querySelector('.st-key-launch_more')"
MOST_MS, MOST_FORM_MS, MOST_SHIFT, MOST_MB = 300, 500, 0.1, 5
PATIENCE_MS = 120_000
SCRIPT = Path(__file__).parents[1] / "scripts" / "streamlit_pages.py"


def measure(quick: bool) -> Iterator[Figure]:
    """Milliseconds of a warm page, layout shift while it changes, and MB over the network with an empty cache."""
    runs, clicks = (200, 2) if quick else (10_000, 21)
    with tempfile.TemporaryDirectory() as folder:
        service = opened(Path(folder) / "data")
        seed_runs(service.store, service.clock(), runs)
        with (
            browsed(service) as dashboard,
            streamlit(SCRIPT, str(service.settings.data / "rankzero.db")) as (_, plain),
            chromium(Path(folder) / "profile") as browser,
            browser.visit(1440) as visit,
        ):
            megabytes = _first_visit(visit, dashboard, runs)
            has_newest = (HAS_ROWS, f" {runs - QUEUED}")
            ours = _opened(visit, dashboard.entrance, *has_newest)
            theirs = _opened(visit, f"{plain}/runs", HAS_TABLE)
            acts = {
                "ours": partial(_clicked, ours, *has_newest),
                "theirs": partial(_clicked, theirs, HAS_TABLE),
            }
            in_turns(acts, 1)
            ours.evaluate(SHIFTS)
            taken = in_turns(acts, clicks)
            shift = ours.evaluate("window.shifted") / clicks
            form_acts = {"launch": partial(_clicked, ours, HAS_FORM, page_name="Launch")}
            forms = in_turns(form_acts, clicks + 1)["launch"][1:]
    what, middle = f"click to the content, Runs page of {runs:,}", f"{Spread.of(taken['ours']).median:.0f} ms"
    spread = Spread.of(each / MOST_MS for each in taken["ours"])
    yield Figure(what, middle, "a limit", f"{MOST_MS} ms", spread, 1, "less")
    peer, against = "Streamlit's own table", f"{Spread.of(taken['theirs']).median:.0f} ms"
    yield Figure(what, middle, peer, against, ratios(*taken.values()), 1, "less")
    p95 = float(np.percentile(taken["ours"], 95))
    limit = Spread.of([p95 / MOST_MS])
    yield Figure(f"{what}, p95", f"{p95:.0f} ms", "a limit", f"{MOST_MS} ms", limit, 1, "less")
    form, limit = f"{Spread.of(forms).median:.0f} ms", Spread.of(each / MOST_FORM_MS for each in forms)
    yield Figure("click to the content, Launch page", form, "a limit", f"{MOST_FORM_MS} ms", limit, 1, "less")
    limit = Spread.of([shift / MOST_SHIFT])
    yield Figure("layout shift of it", f"{shift:.3f}", "a limit", f"{MOST_SHIFT}", limit, 1, "less")
    limit = Spread.of([megabytes / MOST_MB])
    yield Figure("bytes of a first visit", f"{megabytes:.1f} MB", "a limit", f"{MOST_MB} MB", limit, 1, "less")


def _first_visit(visit: Visit, dashboard: Browsed, runs: int) -> float:
    page = visit.new_cold_page()
    page.goto(dashboard.entrance)
    page.wait_for_function(HAS_ROWS, arg=f" {runs - QUEUED}", timeout=PATIENCE_MS)
    return float(page.evaluate(BYTES)) / 1e6


def _opened(visit: Visit, address: str, is_shown: str, newest: str | None = None) -> Page:
    page = visit.new_page()
    page.goto(address)
    page.wait_for_function(is_shown, arg=newest, timeout=PATIENCE_MS)
    return page


def _clicked(page: Page, is_shown: str, newest: str | None = None, page_name: str = "Runs") -> float:
    """Milliseconds from the click on its name until the newest run that is not queued, the table or form is there."""
    page.bring_to_front()
    page.get_by_role("link", name="Nodes").click()
    page.wait_for_url(lambda url: not url.endswith("/runs"))
    page.wait_for_timeout(500)
    link = page.get_by_role("link", name=page_name)
    link.wait_for()
    began = time.perf_counter()
    link.click()
    page.wait_for_function(is_shown, arg=newest, timeout=PATIENCE_MS)
    return 1000 * (time.perf_counter() - began)
