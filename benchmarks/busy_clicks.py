"""Clicks in Chromium on a busy machine: pages that stay blank or stuck, where every refresh meets a click.

python -m benchmarks.busy_clicks [CLICKS] clicks *Launch again with changes* that often, and opens and closes that many
dialogs, beside two programs that do nothing but count, on a run that has news several times a second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.sync_api import Error, Page, expect

from dashboard.service.service import Service, act_as_program
from domain.spec import RunEdit
from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_store import seed
from tests.end_to_end.browsers import chromium

RUN = "gpt wide, long warm-up"
NEWS_EVERY_S = 0.3
PATIENCE_MS = 20_000
"""A page that has not answered a click by then is stuck."""
BAR = ".st-key-bar"


def main() -> None:
    """Click, and print what went wrong."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("clicks", nargs="?", type=int, default=500)
    clicks = arguments.parse_args().clicks
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        service = opened(Path(folder) / "data")
        run_id = seed(service.store, service.clock(), service.files.root).runs[RUN]
        dashboard = running.enter_context(browsed(service))
        for load in busy, lambda: news(service, run_id):
            running.enter_context(load())
        visit = running.enter_context(running.enter_context(chromium(Path(folder) / "profile")).visit())
        page = visit.new_page()
        page.goto(dashboard.entrance)
        print(json.dumps(clicked(page, dashboard, run_id, clicks) | {"errors": len(visit.errors)}))


def clicked(page: Page, dashboard: Browsed, run_id: str, clicks: int) -> dict[str, object]:
    """Counts of stuck and blank pages and of pages that had to be loaded again, after so many clicks of each kind."""
    address = f"{dashboard.url}/run?id={run_id}"
    found = Counter[str]()
    loads = Counter[str]()
    page.on("load", lambda: loads.update(["load"]))
    for name, act in KINDS.items():
        start = f"{dashboard.url}/nodes?node=gpu-1" if act is open_and_close_on_nodes else address
        opened_at(page, start)
        began = time.perf_counter()
        for _ in range(clicks // (1 if act is launch_again else 2)):
            loaded = loads["load"]
            if trouble := trouble_of(page, act):
                found[f"{name}: {trouble}"] += 1
                opened_at(page, start)
            else:
                found[f"{name}: reloaded"] += loads["load"] - loaded
        found[f"{name}: seconds"] = round(time.perf_counter() - began)
    return {"clicks": clicks, **found}


def opened_at(page: Page, address: str) -> None:
    """Load a page and wait until it is there: a cold browser on a busy machine takes its time."""
    page.goto(address)
    page.locator(".stApp[data-test-script-state=notRunning] .st-key-bar").wait_for()


def trouble_of(page: Page, act: Callable[[Page], None]) -> str | None:
    """Return what became of the page that did not answer."""
    try:
        act(page)
    except (AssertionError, Error) as error:
        print(f"{page.url}: {error}", file=sys.stderr)
        return "stuck" if page.locator(BAR).count() else "blank"
    return None


def launch_again(page: Page) -> None:
    """Open the form from the run's page, and go back."""
    page.get_by_role("link", name="Launch again with changes").click(timeout=PATIENCE_MS)
    expect(page.get_by_text(f"Filled in from run {RUN}")).to_be_visible(timeout=PATIENCE_MS)
    page.go_back()


def open_and_close(page: Page) -> None:
    """Ask for the run's end, and think better of it."""
    page.get_by_role("button", name="Stop", exact=True).click(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Keep it going").click(timeout=PATIENCE_MS)
    expect(page.get_by_role("dialog")).to_have_count(0, timeout=PATIENCE_MS)


def open_and_close_on_nodes(page: Page) -> None:
    """Ask for the removal of a node in its panel, which is drawn again every few seconds."""
    page.locator(".st-key-node_details").get_by_role("button", name="Remove").click(timeout=PATIENCE_MS)
    page.get_by_role("button", name="Keep it").click(timeout=PATIENCE_MS)
    expect(page.get_by_role("dialog")).to_have_count(0, timeout=PATIENCE_MS)


KINDS = {"again": launch_again, "dialog": open_and_close, "node": open_and_close_on_nodes}


@contextmanager
def busy() -> Iterator[None]:
    """Keep two cores busy."""
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextmanager
def news(service: Service, run_id: str) -> Iterator[None]:
    """Write a line of history every moment, so that the run's page is drawn again all the time."""
    ended = threading.Event()

    def write() -> None:
        act_as_program()
        while not ended.wait(NEWS_EVERY_S):
            service.edit(run_id, RunEdit(note=f"seen at {time.time()}"))

    writing = threading.Thread(target=write)
    writing.start()
    try:
        yield
    finally:
        ended.set()
        writing.join()


if __name__ == "__main__":
    main()
