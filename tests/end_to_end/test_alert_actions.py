"""An alert on the running product rolls a run back whose loss spikes, once, though the dashboard is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dashboard.alerts.receivers import Http, Receiver, serving
from tests.end_to_end.kills import kill_and_wait_for_another
from tests.end_to_end.product import Product, wait_for

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).parent / "scripts" / "spiking.py"


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


@pytest.mark.long
def test_a_run_whose_loss_spikes_goes_on_from_before_with_half_its_rate(alerting: Product, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    args = ["--lr=0.1", "--steps=100000", f"--stop-file={stop}", "--resume={resume}"]
    with serving(Http, Receiver()) as hook:
        body = {"rule": "spike", "target": f"http://127.0.0.1:{hook.port}/", "act": "rollback"}
        answer = alerting.request("POST", "/api/alerts", json=body)
        assert (answer.status_code, answer.json()["lr_factor"]) == (201, 0.5), answer.text
        run_id = alerting.launch(SCRIPT, strategy="single", gpus_per_node=1, args=args)
        wait_for(lambda: alerting.run(run_id)["attempt"] == 2, "the rollback", 300, explain=lambda: alerting.tail())
        kill_and_wait_for_another(alerting, "dashboard")
        alerting.wait_state(run_id, "running")
        alerting.wait_step(run_id, 400, 300)
        stop.touch()
        run = alerting.wait_state(run_id)
        wait_for(lambda: hook.received, "the message", 120)
    assert (run["state"], run["attempt"], run["lr"]) == ("succeeded", 2, 0.05)
    first, second = alerting.get(f"/api/runs/{run_id}/attempts")
    assert first["message"].startswith("Ended to go back to its last checkpoint up to step 13")
    assert second["resumed_from"] == "work/step_120.pt"
    losses = alerting.get(f"/api/runs/{run_id}/metrics")["train/loss"]
    assert max(value for _, value, _ in losses[-50:]) < 20.0, "with half the rate it holds"
    bodies = [message.body.decode() for message in hook.received]
    assert len(bodies) == 1 and "at step 13" in bodies[0]
    assert "with the learning rate 0.05 instead of 0.1." in bodies[0]
