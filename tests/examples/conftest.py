"""One running product for the examples of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.end_to_end.product import Product
from tests.examples.trained import Examples


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Examples]:
    running = Product(tmp_path_factory.mktemp("product") / "data")
    try:
        running.start()
        yield Examples(running)
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()
