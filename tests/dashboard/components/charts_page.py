"""A page in a browser with the components of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.dashboard.live_server import FakeServer
from tests.end_to_end.browsers import Chromium

WALL = 1_760_000_000.0
Show = Callable[..., Page]


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def show(browser: Chromium, server: FakeServer) -> Iterator[Show]:
    """Open a page with components; at the end no page may have had an error."""
    with server.serving() as address, browser.visit() as visit:

        def open_page(components: str = "charts", theme: str = "light") -> Page:
            page = visit.new_page()
            page.goto(f"{address}/?show={components}&theme={theme}")
            expect(page.locator("body[data-ready=yes]")).to_have_count(1)
            return page

        yield open_page
        assert visit.errors == []


def card(page: Page, name: str) -> Locator:
    """The chart that draws a series."""
    return page.locator(f'.card[data-series~="{name}"]')


def drawn(chart: Locator) -> str:
    """The picture on a chart's canvas."""
    return str(chart.locator("canvas").evaluate("canvas => canvas.toDataURL()"))
