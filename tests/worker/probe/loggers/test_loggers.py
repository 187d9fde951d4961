"""Each logger in a script of two gloo ranks: the points are those that the package itself reads back."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from tests.worker.probe.loggers import logged
from tests.worker.probe.loggers.scripts import LOGGERS
from tests.worker.probe.watched import TORCHRUN, Watched

pytestmark = pytest.mark.long


@pytest.mark.parametrize("package", LOGGERS)
def test_every_point_is_the_one_that_the_package_reads(package: str, tmp_path: Path):
    if importlib.util.find_spec(package.partition(".")[0]) is None:
        pytest.skip(f"{package} is not installed")
    watched, (script, reader) = Watched(tmp_path), LOGGERS[package]
    folders = {
        "HOME": str(tmp_path),
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    env = watched.environment(**folders)
    file = watched.script(logged.TRAINING + script if "losses(" in script else script)
    watched.run([*TORCHRUN, "--nproc-per-node=2", file], env=env)
    theirs = json.loads(watched.run([sys.executable, "-c", reader], env=env).splitlines()[-1])
    curves = {
        name: [[step, value] for step, value in points] for name, points in logged.curves(tmp_path / "attempt").items()
    }
    assert curves == theirs["curves"]
    assert logged.settings(tmp_path / "attempt")["config"] == theirs["config"]
    assert logged.read_from_disk(tmp_path / "attempt", tmp_path) == {}
    faults = [
        line for path in watched.records.glob("*.jsonl") for line in path.read_text().splitlines() if '"error"' in line
    ]
    assert not faults
