"""Which tests run together, and in which part of them."""

from __future__ import annotations

import pytest

from tests.parts import part_of, place_of, together

HOSTS = "tests/end_to_end/test_hosts_lost.py::test_node"
PRODUCT = "tests/end_to_end/test_up.py::test_demo"
RULES = "tests/domain/test_spec.py::test_spec"


@pytest.mark.parametrize(
    ("test", "part"),
    [(HOSTS, "hosts"), (PRODUCT, "product"), (RULES, "rules"), ("tests/test_parts.py", "rules")],
)
def test_longest_beginning_decides_the_part(test: str, part: str) -> None:
    assert part_of(test) == part


def test_whole_products_run_before_short_files() -> None:
    assert place_of(PRODUCT) < place_of(HOSTS) < place_of(RULES)


def test_one_process_runs_all_hosts_and_few_products() -> None:
    assert together(PRODUCT, with_long=False) == "product"
    assert together(PRODUCT, with_long=True) == "tests/end_to_end/test_up.py"
    assert together(HOSTS, with_long=True) == "hosts"
    assert together(RULES, with_long=True) == "tests/domain/test_spec.py"
