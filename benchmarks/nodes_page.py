"""What the Nodes page costs with many nodes: painting it, keeping it current, and drawing its picture on the server.

    .venv/bin/python benchmarks/nodes_page.py --nodes 212

Painted means: from asking for the address (or clicking, within the open dashboard) until every cell is in the page.
Kept current: what the browser spends while every device's utilisation changes with each answer.
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

from playwright.sync_api import CDPSession, Page, sync_playwright
from sqlalchemy import select

from dashboard.api.nodes import Pictures
from dashboard.service.service import Service
from db.models import Node
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_cluster import seed_cluster
from tests.end_to_end.browsers import launch

WATCH = """() => {
  window.longest = 0;
  const longer = (list) => { for (const task of list.getEntries()) longest = Math.max(longest, task.duration); };
  new PerformanceObserver(longer).observe({ type: 'longtask' });
}"""
HAS_CELLS = """(wanted) => [...document.querySelectorAll('*')].some(
  (element) => element.shadowRoot?.querySelectorAll('.node .strip .cell').length >= wanted)"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=212)
    parser.add_argument("--visits", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        service = opened(Path(folder) / "data")
        seed_cluster(service.store, service.clock(), options.nodes)
        server(service, 20)
        with browsed(service) as dashboard, sync_playwright() as playwright:
            page = launch(playwright).new_page(viewport={"width": 1440, "height": 900})
            page.goto(dashboard.entrance)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})  # not what a busy machine makes it wait
            visits(page, session, dashboard, options.nodes, options.visits)
            redraws(page, session, service, 4)


def server(service: Service, times: int) -> None:
    """Processor time of one picture, which all viewers share for a second."""
    spent = []
    for _ in range(times):
        began = time.thread_time()
        text, _ = Pictures(service).latest()
        spent.append(time.thread_time() - began)
    print(f"picture on the server    {statistics.median(spent) * 1e3:.0f} ms, {len(text) / 1024:.1f} KiB gzipped")


def visits(page: Page, session: CDPSession, dashboard: Browsed, nodes: int, times: int) -> None:
    """By the address, which loads Streamlit anew, and by a click on the page's name."""

    def painted(go: Callable[[], object]) -> float:
        began = time.perf_counter()
        go()
        page.wait_for_function(HAS_CELLS, arg=nodes * 8, timeout=120_000)
        return time.perf_counter() - began

    painted(lambda: page.goto(f"{dashboard.url}/nodes"))
    by_address = [painted(lambda: page.goto(f"{dashboard.url}/nodes")) for _ in range(times)]
    by_click, work = [], []
    for _ in range(times):
        page.get_by_role("link", name="Runs").click()
        page.wait_for_timeout(2000)
        before = spent_s(session)
        by_click.append(painted(lambda: page.get_by_role("link", name="Nodes").click()))
        work.append(spent_s(session) - before)
    print(f"painted, by its address  {figures(by_address)}")
    print(f"painted, by a click      {figures(by_click)}; the browser works {statistics.median(work):.2f} s for it")
    began = time.perf_counter()
    page.locator(".node .name").nth(nodes // 2).click()
    page.locator(".st-key-node_details").wait_for()
    print(f"one node in detail       {time.perf_counter() - began:.2f} s after the click")


def redraws(page: Page, session: CDPSession, service: Service, times: int) -> None:
    """Every device's utilisation changes between two answers."""
    page.evaluate(WATCH)
    before, began = spent_s(session), time.perf_counter()
    for turn in range(times):
        with service.store.write() as store:
            for node in store.scalars(select(Node)):
                gpus = [gpu | {"utilisation_percent": (turn * 17 + 40) % 100} for gpu in node.load["gpus"]]
                node.load = node.load | {"gpus": gpus}
        page.wait_for_timeout(2500)
    busy = (spent_s(session) - before) / (time.perf_counter() - began)
    longest = page.evaluate("window.longest")
    print(f"the open page            {busy:.1%} of a core in the browser; longest task {longest:.0f} ms (0: under 50)")


def spent_s(session: CDPSession) -> float:
    """Processor time of the page's main thread."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def figures(spent: list[float]) -> str:
    return f"median {statistics.median(spent):.2f} s, longest {max(spent):.2f} s"


if __name__ == "__main__":
    main()
