"""With every rule set, examples and a recipe that train as they should are told of once each: when they finish."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from domain.alerts.judgement import best_step, spikes_in
from domain.alerts.rules import LIMITS, Trigger
from tests.dashboard.alerts.receivers import Http, Receiver, serving
from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAININGS: dict[str, dict[str, Any]] = {
    "ddp": {"target": str(EXAMPLES / "ddp.py"), "gpus_per_node": 2, "args": ["--epochs=20"]},
    "print_only": {"target": str(EXAMPLES / "print_only.py"), "gpus_per_node": 2},
    "data_parallel": {"target": str(EXAMPLES / "data_parallel.py"), "strategy": "dp"},
    "recipe": {"target": "image_classifier", "gpus_per_node": 2, "max_steps": 300},
}
STANDSTILL = 500
"""Steps, as in the rule."""


@pytest.fixture
def alerting(tmp_path: Path):
    """A product that may send to this machine."""
    product = Product(tmp_path / "data", env={"RANKZERO_ALERT_PRIVATE_TARGETS": "true"})
    try:
        product.start()
        yield product
        assert product.stop() == 0, product.tail()
    finally:
        product.clean_up()


def set_all(product: Product, target: str) -> None:
    for trigger in Trigger:
        rule = f"{trigger}={LIMITS[trigger]}" if trigger in LIMITS else trigger.value
        answer = product.request("POST", "/api/alerts", json={"rule": rule, "target": target})
        assert answer.status_code == 201, answer.text


def losses(product: Product, run_id: str) -> dict[str, list[tuple[int, float, float]]]:
    series = product.get(f"/api/runs/{run_id}/metrics?source=all")
    named = {name: points for name, points in series.items() if "loss" in name}
    assert named, list(series)
    return {name: [(step, float(value), wall) for step, value, wall in pts] for name, pts in named.items()}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_nothing_is_told_of_good_trainings_but_that_they_finished(alerting: Product) -> None:
    with serving(Http, Receiver()) as hook:
        set_all(alerting, f"http://127.0.0.1:{hook.port}/")
        runs = {}
        for name, spec in TRAININGS.items():  # one after another
            runs[name] = alerting.launch(**spec, name=name)
            assert alerting.wait_state(runs[name], timeout_s=600)["state"] == "succeeded"
        notified: list[dict[str, Any]] = []

        def all_told() -> bool:
            notified[:] = [e for m in hook.received for e in json.loads(m.body)["events"]]
            return len(notified) >= len(runs)

        wait_for(all_told, "a message about each", 240)
        listed = alerting.get("/api/alerts")
    assert sorted(event["run"] for event in notified) == sorted(runs.values())
    assert {json.loads(m.body)["rule"] for m in hook.received} == {"finished"}
    quiet = [alert for alert in listed if alert["rule"] != "finished"]
    assert [alert for alert in quiet if alert["waiting"] or alert["last_sent_at"] or alert["problem"]] == []
    for run_id in runs.values():
        for name, points in losses(alerting, run_id).items():
            values = [value for _, value, _ in points if math.isfinite(value)]
            assert spikes_in(points, len(values), sum(values)) == [], name
            ends = range(len(points)) if len(points) < 1000 else range(0, len(points), 50)
            assert [end for end in ends if best_step(points[:end], STANDSTILL) is not None] == [], name
