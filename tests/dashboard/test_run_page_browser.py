"""The Run page in Chromium, served as it is: it builds itself from top to bottom, and its address says what is open."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.dashboard.browsed import Browsed, browsed, opened
from tests.dashboard.seeded_store import Seed, seed
from tests.end_to_end.browsers import CHROMIUM, chromium

pytestmark = pytest.mark.skipif(
    shutil.which(CHROMIUM) is None, reason="needs Chromium (apt-get install chromium)"
)
LIMIT_MS = 60_000
WATCH_SHIFTS = """
window.shifts = [];
const where = (source) => `${source.node?.parentElement?.className ?? ''} > ${source.node?.className ?? source.node} ` +
    `${JSON.stringify(source.previousRect)} -> ${JSON.stringify(source.currentRect)}`;
new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
        if (!entry.hadRecentInput) window.shifts.push([entry.value, ...entry.sources.map(where)]);
    }
}).observe({type: 'layout-shift', buffered: true});
"""
MOST_SHIFT = 0.05
"""Of the cumulative layout shift: a page that is steadier than this looks steady."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Browsed, Seed]]:
    service = opened(tmp_path_factory.mktemp("run page") / "data")
    seeded = seed(service.store, service.clock(), service.files.root)
    with browsed(service) as it:
        yield it, seeded


@pytest.fixture
def context(browser: Browser, dashboard: tuple[Browsed, Seed]) -> Iterator[BrowserContext]:
    """Somebody who has signed in, and whose pages may have no error."""
    expect.set_options(timeout=LIMIT_MS)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(LIMIT_MS)
    errors: list[str] = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    context.request.get(dashboard[0].entrance)
    context.add_init_script(WATCH_SHIFTS)
    yield context
    context.close()
    assert errors == []


def shown(context: BrowserContext, dashboard: tuple[Browsed, Seed], label: str, more: str = "") -> Page:
    """A run's page, as far as its header is there."""
    served, seeded = dashboard
    page = context.new_page()
    page.goto(f"{served.url}/run?id={seeded.runs[label]}{more}")
    expect(page.locator(".run-header .name")).to_have_text(label)
    return page


def shift(page: Page) -> float:
    """What moved so far without anybody's doing; printed, for whoever has to find out."""
    found = page.evaluate("window.shifts")
    for value, *sources in found:
        print(f"{value:.4f}", *sources, sep="\n    ")
    return sum(value for value, *_ in found)


def test_a_page_with_charts_builds_itself_from_top_to_bottom(context, dashboard) -> None:
    page = shown(context, dashboard, "digits baseline")
    expect(page.locator(".card canvas").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert shift(page) < MOST_SHIFT


def test_the_open_tab_stands_in_the_address_and_a_reload_keeps_it(context, dashboard) -> None:
    page = shown(context, dashboard, "digits baseline")
    expect(page.get_by_role("tab")).to_have_text(
        ["Charts", "Logs", "Ranks", "Checkpoints", "History", "Code", "Commands", "Spec"]
    )
    expect(page.locator(".card").first).to_be_visible()
    page.get_by_role("tab", name="Logs").click()
    expect(page.locator(".log-view")).to_be_visible()
    expect(page).to_have_url(re.compile(r"&tab=logs$"))
    expect(page.locator(".charts")).to_have_count(0)
    page.reload()
    expect(page.locator(".log-view")).to_be_visible()
    expect(page.get_by_role("tab", name="Logs")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="History").click()
    expect(page.get_by_text("running: all ranks exist")).to_be_visible()
    page.go_back()
    expect(page.locator(".log-view")).to_be_visible()
