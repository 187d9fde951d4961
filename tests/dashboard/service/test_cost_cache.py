"""An answer is read once for all who ask, and again when it has cost little enough."""

from __future__ import annotations

import pytest

from dashboard.service.cost_cache import CostCache


class Reader:
    """Answers that cost 0.3 s of a core each, and a clock."""

    def __init__(self) -> None:
        self.now, self.spent_s, self.count = 100.0, 0.0, 0

    def read(self) -> int:
        self.spent_s += 0.3
        self.count += 1
        return self.count

    def cache(self, least_s: float = 0.0, most: int = 64) -> CostCache[str, int]:
        return CostCache(least_s, most, lambda: self.now, lambda: self.spent_s)


def test_an_answer_is_shared_as_long_as_it_cost_to_read() -> None:
    reader = Reader()
    cache = reader.cache()
    assert cache.get("a", reader.read) == 1
    reader.now += 5.9
    assert cache.get("a", reader.read) == 1
    reader.now += 0.2
    assert cache.get("a", reader.read) == 2


def test_a_cheap_answer_is_shared_for_the_least_time() -> None:
    reader = Reader()
    cache = reader.cache(least_s=60.0)
    cache.get("a", reader.read)
    reader.now += 59.0
    assert (cache.get("a", reader.read), cache.get("b", reader.read)) == (1, 2)


def test_the_oldest_answer_goes_first() -> None:
    reader = Reader()
    cache = reader.cache(most=2)
    for key in "abc":
        cache.get(key, reader.read)
    assert [cache.get(key, reader.read) for key in "bca"] == [2, 3, 4]


def test_a_failure_is_raised_and_not_shared() -> None:
    reader, cache = Reader(), Reader().cache()
    with pytest.raises(ZeroDivisionError):
        cache.get("a", lambda: 1 // 0)
    assert cache.get("a", reader.read) == 1
