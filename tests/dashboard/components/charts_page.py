"""A page in a browser with the components of a run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.dashboard.live_server import FakeServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
WALL = 1_760_000_000.0
Show = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def show(browser: Browser, server: FakeServer) -> Iterator[Show]:
    """Open a page with components; at the end no page may have had an error."""
    errors: list[str] = []
    expect.set_options(timeout=20_000)
    with server.serving() as address:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)

        def open_page(components: str = "charts", theme: str = "light") -> Page:
            page = context.new_page()
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.goto(f"{address}/?show={components}&theme={theme}")
            expect(page.locator("body[data-ready=yes]")).to_have_count(1)
            return page

        yield open_page
        context.close()
    assert errors == []


def card(page: Page, name: str) -> Locator:
    """The chart that draws a series."""
    return page.locator(f'.card[data-series~="{name}"]')


def drawn(chart: Locator) -> str:
    """The picture on a chart's canvas."""
    return str(chart.locator("canvas").evaluate("canvas => canvas.toDataURL()"))


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = 20) -> None:
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, f"waited {limit_s} s for {what}"
        time.sleep(0.03)
