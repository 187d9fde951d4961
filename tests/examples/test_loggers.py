"""The examples that log with something else than event files: the curves are what the logger itself wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.killed_worker import end_with_the_worker_killed
from tests.examples.trained import EXAMPLES, Examples, Trained
from tests.worker.probe.loggers import wandb_files

pytestmark = pytest.mark.long


@pytest.mark.parametrize("probe", [True, False], ids=["probe", "files"])
def test_wandb_with_the_worker_killed_in_between(examples: Examples, probe: bool):
    pytest.importorskip("wandb")
    product = examples.product
    env = {} if probe else {"WANDB_MODE": "offline"}
    run_id = product.launch(EXAMPLES / "wandb_ddp.py", gpus_per_node=2, probe=probe, env=env)
    run = end_with_the_worker_killed(product, run_id)
    trained = Trained(product, run)
    (file,) = trained.work.glob("wandb/offline-run-*/run-*.wandb")
    curves = {name: [(step, value) for step, value, _ in points] for name, points in trained.curves().items()}
    assert curves == wandb_files.curves(file)
    assert len(curves["train.loss"]) == 100 and [step for step, _ in curves["val/loss"]] == [0, 1, 2, 3]
    trained.assert_nothing_is_found_wrong()
    logged = product.get(f"/api/runs/{run_id}/loggers")["wandb"]
    assert logged["config"] == wandb_files.config(file) and logged["tags"] == ["example"]
    assert logged["summary"] == {"epochs": 4}
    assert logged.get("offline_because") == ("no API key" if probe else None)


ISOLATED = """
import subprocess, sys, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    subprocess.run([sys.executable, "-I", "-c", LOGGING], check=True)
dist.barrier()
dist.destroy_process_group()
"""
"""Rank 0 lets an interpreter log that loads nothing from PYTHONPATH: the probe is not in it."""
LOGGING = """
import mlflow, time
mlflow.set_tracking_uri("{uri}")
with mlflow.start_run(tags={{"kind": "short"}}):
    mlflow.log_params({{"lr": 0.05}})
    for step in range(200):
        mlflow.log_metric("train/loss", 1 / (step + 1), step=10 * step)
        mlflow.log_metrics({{"nan": float("nan"), "epoch": step // 50}}, step=step)
        time.sleep(0.05)
"""
READER = """
import json, mlflow
mlflow.set_tracking_uri("{uri}")
client = mlflow.MlflowClient()
(run,) = client.search_runs(["0"])
histories = {{key: client.get_metric_history(run.info.run_id, key) for key in run.data.metrics}}
print(json.dumps({{key: [[m.step, m.value, m.timestamp / 1000] for m in ms] for key, ms in histories.items()}}))
"""


@pytest.mark.parametrize("uri", ["file:./mlruns", "sqlite:///mlflow.db"], ids=["files", "SQLite"])
def test_mlflow_where_the_probe_cannot_enter(examples: Examples, uri: str, tmp_path: Path):
    pytest.importorskip("mlflow")
    script = tmp_path / "train.py"
    script.write_text(f"LOGGING = {LOGGING.format(uri=uri)!r}\n" + ISOLATED)
    env = {"MLFLOW_ALLOW_FILE_STORE": "true"}
    product = examples.product
    run_id = product.launch(script, gpus_per_node=2, env=env)
    trained = Trained(product, end_with_the_worker_killed(product, run_id))
    theirs = subprocess.run(
        [sys.executable, "-c", READER.format(uri=uri)],
        cwd=trained.work, env=os.environ | env, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    ours, curves = trained.curves(), json.loads(theirs)
    assert ours.pop("nan") == [[step, "NaN", wall] for step, _, wall in curves.pop("nan")]
    assert ours == curves and len(curves["train/loss"]) == 200
    logged = product.get(f"/api/runs/{run_id}/loggers")["mlflow"]
    assert (logged["config"], logged["tags"]) == ({"lr": "0.05"}, ["kind=short"])
