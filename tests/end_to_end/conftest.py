"""One running product for the tests of all modules: starting it costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.product import Product


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
