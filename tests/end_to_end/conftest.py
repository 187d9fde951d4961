"""One running product for the tests of all modules: starting it costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.end_to_end.browsers import Chromium
from tests.end_to_end.product import Product

PATIENCE_MS = 180_000


@pytest.fixture(scope="session")
def running_product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """It is started once; its end proves that no process of it is left."""
    running = Product(tmp_path_factory.mktemp("product") / "data")
    try:
        running.start()
        yield running
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()


@pytest.fixture(scope="module")
def product(running_product: Product) -> Iterator[Product]:
    """The product without a run; those of the module are stopped and deleted after it."""
    running_product.wait_ready()
    yield running_product
    running_product.delete_runs()


@pytest.fixture
def browser_page(product: Product, browser: Chromium) -> Iterator[Page]:
    """A page that is logged in; nothing it asks for may lie outside the dashboard."""
    with browser.visit(limit_ms=PATIENCE_MS) as visit:
        page = visit.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{product.url}/?token={product.token()}")
        expect(page.get_by_text("No runs yet")).to_be_visible()
        yield page
        foreign = [url for url in asked if not url.startswith((product.url, "data:", "blob:"))]
        assert not foreign, f"the pages asked the internet: {foreign}"
