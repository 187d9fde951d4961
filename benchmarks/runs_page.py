"""What the Runs page costs with many runs: reading a window, opening the page, scrolling, searching and sorting.

    .venv/bin/python benchmarks/runs_page.py --runs 10000

The server's time is that of a window nobody asked for before. Painted means: until the rows are in the page, counted
from the request for the address, from the scroll, or from the answer's request within the open page (p95 of all loads).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.sync_api import Page, sync_playwright

from dashboard.service import overview as overviews
from dashboard.service.loss_curves import LossCurves
from dashboard.service.overview import Filter, RowRange, overview
from dashboard.service.service import Service
from tests.dashboard.browsed import browsed, opened
from tests.dashboard.seeded_runs import QUEUED, seed_runs
from tests.end_to_end.browsers import CHROMIUM, QUIET

SEARCHES = {
    "all, by urgency": (Filter(), RowRange()),
    "in the middle": (Filter(), RowRange(offset=5000)),
    "state:failed lr>0.0001": (Filter(search="state:failed lr>0.0001"), RowRange()),
    "val/loss<0.5": (Filter(search="val/loss<0.5"), RowRange()),
    "tag:paper out": (Filter(search="tag:paper out"), RowRange()),
    "sorted by loss": (Filter(), RowRange(sort="loss")),
    "sorted by throughput": (Filter(), RowRange(sort="-throughput")),
}
FIND = """const find = () => { for (const element of document.querySelectorAll('*'))
  if (element.shadowRoot?.querySelector('.runs')) return element.shadowRoot; };
const links = () => [...(find()?.querySelectorAll('td.name a') ?? [])];"""
HAS_ROWS = f"(name) => {{ {FIND} return links().some((link) => link.textContent.includes(name)); }}"
SCROLLED = f"""async (share) => {{
  {FIND}
  const main = document.querySelector('[data-testid="stMain"]'), began = performance.now();
  main.scrollTop = share * (main.scrollHeight - main.clientHeight);
  const isSeen = ({{ top, bottom }}) => bottom > 300 && top < innerHeight - 100;
  while (!links().some((link) => isSeen(link.getBoundingClientRect()))) await new Promise(requestAnimationFrame);
  return performance.now() - began;
}}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--loads", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service = opened(Path(folder) / "data")
        seed_runs(service.store, service.clock(), options.runs)
        server(service, options.loads)
        with browsed(service) as dashboard, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(dashboard.entrance)
            newest = f" {options.runs - QUEUED}"
            wait(page, newest)
            by_address = [
                loaded(page, lambda: page.goto(dashboard.url), newest) for _ in range(options.loads)
            ]
            print(f"painted, by its address     {figures(by_address)}")
            by_click = [clicked(page, newest) for _ in range(options.loads)]
            print(f"painted, by a click         {figures(by_click)}")
            shares = [(place + 0.5) / options.loads for place in range(options.loads)]
            scrolled = [page.evaluate(SCROLLED, share) / 1e3 for share in shares]
            print(f"painted, after a scroll     {figures(scrolled)}")


def server(service: Service, times: int) -> None:
    """Time of one window on the server, with its curves."""
    for name, (run_filter, window) in SEARCHES.items():
        spent, work = [], []
        for place in range(times):
            overviews.CURVES = LossCurves()
            began, worked = time.perf_counter(), time.thread_time()
            overview(
                service.store, service.clock(), run_filter, window._replace(offset=window.offset + place * 25)
            )
            spent.append(time.perf_counter() - began)
            work.append(time.thread_time() - worked)
        print(f"window: {name:<22} {figures(spent)}; processor {statistics.median(work) * 1e3:.0f} ms")


def loaded(page: Page, go: Callable[[], object], name: str) -> float:
    began = time.perf_counter()
    go()
    wait(page, name)
    return time.perf_counter() - began


def clicked(page: Page, name: str) -> float:
    """From the click on the page's name, within the open dashboard."""
    page.get_by_role("link", name="Nodes").click()
    page.wait_for_url("**/nodes")
    page.wait_for_timeout(500)
    return loaded(page, page.get_by_role("link", name="Runs").click, name)


def wait(page: Page, name: str) -> None:
    page.wait_for_function(HAS_ROWS, arg=name, timeout=120_000)


def figures(spent: list[float]) -> str:
    p95 = sorted(spent)[max(0, round(0.95 * len(spent)) - 1)]
    return f"median {statistics.median(spent) * 1e3:.0f} ms, p95 {p95 * 1e3:.0f} ms"


if __name__ == "__main__":
    main()
