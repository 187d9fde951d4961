"""A leak of host memory is named while the run trains; runs without one are not accused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.real

LEAKING = Path(__file__).parent / "scripts" / "leaking.py"
LEAK_WAIT_S = 400.0
"""It is judged from two minutes of samples on."""


@pytest.mark.long  # the samples of two minutes: tests/domain/memory judges, tests/worker/monitor reads the same ones
def test_a_leak_is_named_with_its_rank_and_when_the_memory_is_full(tmp_path: Path):
    product, release = Product(tmp_path / "data", slots=5), tmp_path / "told"
    product.start()
    try:
        leaking = product.launch(LEAKING, gpus_per_node=2, args=["leak", str(release)])
        quiet = [
            product.launch(LEAKING, gpus_per_node=2, args=["collect", str(release)]),
            product.launch("language_model", gpus_per_node=1, max_steps=100_000),
        ]
        wait_for(lambda: product.get(f"/api/runs/{leaking}/findings"), "the leak", LEAK_WAIT_S, pause_s=1.0)
        (finding,) = product.get(f"/api/runs/{leaking}/findings")
        assert finding["kind"] == "memory leak"
        assert re.match(r"\+1[123] MiB a step on rank 1, .*: the node's memory is full in", finding["evidence"])
        assert finding["meaning"] and "loss.item()" in finding["fix"]
        assert [product.get(f"/api/runs/{run_id}/findings") for run_id in quiet] == [[], []]
        release.touch()
        assert product.wait_state(leaking)["state"] == product.wait_state(quiet[0])["state"] == "succeeded"
    finally:
        product.stop()
