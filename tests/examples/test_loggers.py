"""The examples that log with something else than event files: the curves are what the logger itself wrote."""

from __future__ import annotations

import pytest

from tests.end_to_end.product import wait_for
from tests.examples.trained import EXAMPLES, Examples, Trained
from tests.worker.probe.loggers import wandb_files

pytestmark = pytest.mark.long


def test_wandb_with_the_worker_killed_in_between(examples: Examples):
    pytest.importorskip("wandb")
    product = examples.product
    run_id = product.launch(EXAMPLES / "wandb_ddp.py", gpus_per_node=2)
    wait_for(lambda: product.get(f"/api/runs/{run_id}/metrics?source=events"), "a live curve")
    worker = product.child("worker")
    assert worker is not None
    worker.kill()
    run = product.wait_state(run_id)
    assert run["state"] == "succeeded", run["message"]
    trained = Trained(product, run)
    (file,) = trained.work.glob("wandb/offline-run-*/run-*.wandb")
    curves = {name: [(step, value) for step, value, _ in points] for name, points in trained.curves().items()}
    assert curves == wandb_files.curves(file)
    assert len(curves["train.loss"]) == 100 and [step for step, _ in curves["val/loss"]] == [0, 1, 2, 3]
    trained.assert_nothing_is_found_wrong()
    logged = product.get(f"/api/runs/{run_id}/loggers")["wandb"]
    assert logged["config"] == wandb_files.config(file) and logged["tags"] == ["example"]
    assert logged["summary"] == {"epochs": 4} and logged["offline_because"] == "no API key"
