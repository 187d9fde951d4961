"""Each logger in a run of two ranks whose worker is killed: the store has what the package reads, each point once."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.killed_worker import end_with_the_worker_killed
from tests.examples.trained import Examples, Trained
from tests.worker.probe.loggers.logged import TRAINING
from tests.worker.probe.loggers.scripts import LOGGERS

pytestmark = pytest.mark.long
SLOW = TRAINING.replace("        yield step, loss\n", "        yield step, loss\n        time.sleep(2)\n")


@pytest.mark.parametrize("package", [name for name in LOGGERS if "losses(" in LOGGERS[name][0]])
def test_every_point_is_there_once_after_a_kill_of_the_worker(examples: Examples, package: str, tmp_path: Path):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    script, reader = LOGGERS[package]
    (file := tmp_path / "train.py").write_text("import time\n" + SLOW + script)
    env = {"HOME": str(tmp_path), "TRACKIO_DIR": str(tmp_path / "trackio"), "MLFLOW_ALLOW_FILE_STORE": "true"}
    run_id = examples.product.launch(file, gpus_per_node=2, env=env)
    trained = Trained(examples.product, end_with_the_worker_killed(examples.product, run_id))
    read = subprocess.run(
        [sys.executable, "-c", reader], cwd=trained.work, env=os.environ | env, check=True, capture_output=True
    )  # fmt: skip
    theirs = json.loads(read.stdout.splitlines()[-1])
    ours = {name: [point[:2] for point in points] for name, points in trained.curves().items()}
    assert ours == theirs["curves"]
    (logged,) = examples.product.get(f"/api/runs/{run_id}/loggers").values()
    assert logged["config"] == theirs["config"]
    trained.assert_nothing_is_found_wrong()
