"""Ends without an error of their own, on real ranks: who left, who was told to end from outside, who is stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parent / "scripts" / "ends.py"


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """One with room for two ranks."""
    running = Product(tmp_path_factory.mktemp("product") / "data")
    try:
        running.start()
        yield running
        assert running.stop() == 0, running.tail()
    finally:
        running.clean_up()


@pytest.mark.parametrize("kind", ["osexit", "sysexit"])
def test_a_rank_that_leaves_with_0_is_named(product: Product, kind: str) -> None:
    run = product.wait_state(product.launch(SCRIPT, gpus_per_node=2, args=[kind]))
    assert run["state"] == "failed"
    assert run["message"].startswith("rank 1 on ")
    assert "exit code 0 after step 20 while rank 0 went on" in run["message"]


def test_a_question_is_named_with_its_line(product: Product) -> None:
    run = product.wait_state(product.launch(SCRIPT, gpus_per_node=2, args=["input"]))
    assert run["state"] == "failed"
    assert "asks for input on its standard input, which a launched run does not have, ends.py line" in run["message"]


def test_sigterm_from_outside_and_a_clean_exit_is_no_success(product: Product) -> None:
    run_id = product.launch(SCRIPT, gpus_per_node=2, args=["go on"])
    product.wait_step(run_id, 10)
    for rank in product.ranks(run_id).values():
        rank.send_signal(signal.SIGTERM)
    run = product.wait_state(run_id)
    assert run["state"] == "stopped"
    assert "got SIGTERM from outside" in run["message"]
    assert " of 400." in run["message"]


def test_a_stopped_rank_is_named_with_how_to_continue_it(product: Product) -> None:
    run_id = product.launch(SCRIPT, gpus_per_node=2, args=["go on"])
    product.wait_step(run_id, 10)
    rank = product.ranks(run_id)[1]
    rank.send_signal(signal.SIGSTOP)
    finding = wait_for(lambda: product.get(f"/api/runs/{run_id}/findings"), "a finding")[0]
    assert finding["kind"] == "stopped rank"
    assert f"kill -CONT {rank.pid} on node" in finding["fix"]
    rank.send_signal(signal.SIGCONT)
    product.request("POST", f"/api/runs/{run_id}/stop")
    assert product.wait_state(run_id)["state"] == "stopped"
