"""One running product for the tests of a module: starting it costs seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.product import Product


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    running = Product(tmp_path_factory.mktemp("product") / "data")
    try:
        running.start()
        yield running
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()
