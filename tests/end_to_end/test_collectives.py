"""A run whose ranks call different collectives names the rank, its call and its line. Real runs of gloo ranks.

`tests/worker/monitor/test_desync.py` does the same without torchrun and server in each test run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parent / "scripts" / "desync.py"
LINES = SCRIPT.read_text().splitlines()
HANGS = [
    ("extra", "operation", "one too many"),
    ("skipped", "order", "the step's metrics"),
    ("swapped", "order", "the step's metrics"),
    ("group", "group", "other group"),
    ("loader", "loader", "stuck loader"),
]
FAILURES = [("dtype", "dtype", "other dtype"), ("shape", "size", "other shape"), ("exit", "left", "")]
WAITING = "the step's gradients"


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """One with room for four ranks."""
    running = Product(tmp_path_factory.mktemp("product") / "data", slots=4)
    try:
        running.start()
        yield running
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()


def line_with(comment: str) -> str:
    """`desync.py line N` of the line that ends with the comment."""
    (number,) = [number for number, line in enumerate(LINES, start=1) if line.endswith(f"# {comment}")]
    return f"desync.py line {number} "


def assert_named(verdict: dict, kind: str, odd: int, comment: str) -> None:
    assert (verdict["kind"], verdict["ranks"]) == (kind, [odd]), verdict
    waiting, _, culprit = verdict["sentence"].partition("; ")
    assert line_with(WAITING) in waiting and re.match(r"Ranks? 0.* waits? in all_reduce #13 ", waiting), verdict
    assert culprit.startswith(f"rank {odd} ")
    assert not comment or line_with(comment) in culprit, verdict


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize(
    ("desync", "kind", "comment"),
    HANGS,
)
def test_a_hang_names_the_rank_and_its_line(product: Product, desync: str, kind: str, comment: str, ranks: int):
    run_id = product.launch(SCRIPT, gpus_per_node=ranks, args=[desync], hang_after_s=5, stop_grace_s=1)
    findings = wait_for(lambda: product.get(f"/api/runs/{run_id}/findings"), "a finding", 240)
    answer = product.get(f"/api/runs/{run_id}/collectives")
    assert_named(answer["verdict"], kind, ranks - 1, comment)
    assert answer["ranks"]["0"] == {
        "sequence": 13,
        "operation": "all_reduce",
        "sizes": [[1000]],
        "retired": False,
    }
    assert [finding["kind"] for finding in findings] == ["hung"]
    assert findings[0]["evidence"].startswith(answer["verdict"]["sentence"])
    product.request("POST", f"/api/runs/{run_id}/stop")
    product.wait_state(run_id)


@pytest.mark.parametrize("ranks", [3])
@pytest.mark.parametrize(
    ("desync", "kind", "comment"),
    FAILURES,
)
def test_a_failure_names_the_rank_and_its_line(product: Product, desync: str, kind: str, comment: str, ranks: int):
    run_id = product.launch(SCRIPT, gpus_per_node=ranks, args=[desync])
    run = product.wait_state(run_id)
    assert run["state"] == "failed"
    verdict = product.get(f"/api/runs/{run_id}/collectives")["verdict"]
    if kind == "left":  # the message names the rank that left, and so why its call never came
        assert re.match(rf"rank {ranks - 1} on \S+ ended by itself with exit code 0", run["message"])
    else:
        assert run["message"].startswith(f"{verdict['sentence']} rank ")
    assert_named(product.get(f"/api/runs/{run_id}/collectives")["verdict"], kind, ranks - 1, comment)
    (finding,) = product.get(f"/api/runs/{run_id}/findings")
    assert finding["kind"] == "collectives differ"


def test_equal_ranks_are_not_accused(product: Product):
    run_id = product.launch(SCRIPT, gpus_per_node=2, args=["none"])
    product.wait_state(run_id)
    assert product.get(f"/api/runs/{run_id}/findings") == []
    assert product.get(f"/api/runs/{run_id}/collectives")["verdict"] is None
