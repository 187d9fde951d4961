"""Runs that the packages themselves wrote are imported as the packages read them, point by point."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.importers.packages import PACKAGES
from tests.dashboard.running import Running

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_point_is_the_one_that_the_package_reads(
    name: str, dashboard: Running, imported: Callable[..., list[dict[str, Any]]], tmp_path: Path
) -> None:
    package, writer, reader = PACKAGES[name]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    folder = tmp_path / "past"
    folder.mkdir()
    _python(folder, writer)
    theirs = json.loads(_python(folder, reader).splitlines()[-1])
    rows = imported(folder)
    assert {row["name"] for row in rows} == set(theirs) and len(rows) == len(theirs)
    for row in rows:
        run, logged = dashboard.run(row["id"]), theirs[row["name"]]
        metrics = dashboard.http.get(f"/api/runs/{row['id']}/metrics").json()
        settings = dashboard.http.get(f"/api/runs/{row['id']}/loggers").json()
        curves = {tag: [[step, value] for step, value, _ in points] for tag, points in metrics.items()}
        assert curves == logged["curves"]
        assert (run["imported_from"], run["state"]) == (package, logged["state"])
        assert settings.get(package, {}).get("config", {}) == logged["config"]
        walls = [wall for points in metrics.values() for _, _, wall in points]
        assert run["started_at"] - 60 < min(walls) <= max(walls) <= run["ended_at"] + 60
    assert not any(row["is_new"] for row in imported(folder))


def _python(folder: Path, script: str) -> str:
    """Run a script in the folder, without network; returns its output."""
    env = os.environ | {
        "HOME": str(folder), "TRACKIO_DIR": str(folder / "trackio"), "PYTHONPATH": str(ROOT),
        "MLFLOW_ALLOW_FILE_STORE": "true", "WANDB_SILENT": "true",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
