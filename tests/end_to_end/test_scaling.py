"""A scaling study of an unchanged script on the running product: every size is measured and stopped by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).parents[2] / "examples" / "print_only.py"


@pytest.mark.long
def test_an_unchanged_script_is_measured_on_one_and_two_processes(product: Product) -> None:
    spec = {"target": str(SCRIPT), "args": ["--epochs=100000"], "stop_grace_s": 2}
    answer = product.request("POST", "/api/scaling-studies", json={"spec": spec, "gpus": [1, 2], "steps": 200})
    assert answer.status_code == 201, answer.text
    path = f"/api/scaling-studies/{answer.json()['id']}"
    study = wait_for(lambda: (shown := product.get(path))["state"] != "running" and shown, "the end", 900)
    assert study["state"] == "succeeded", study
    one, two = study["points"]
    assert one["speedup"] == 1 and two["speedup"] > 0 and one["samples_per_s"] > 0
    assert two["efficiency"] == pytest.approx(two["speedup"] / 2)
    assert "2 processes" in study["verdict"]
    assert {product.run(point["run"])["state"] for point in study["points"]} == {"stopped"}
