"""A mirror in W&B holds every point of the run, each once, as W&B's own records have it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli import main
from cli.mirrors.wandb import rows_of
from tests.cli.importers.conftest import imported
from tests.dashboard.running import FakeNode, Running

__all__ = ["imported"]
pytest.importorskip("wandb")
STEPS = 1200
PATIENT = {"WANDB__SERVICE_WAIT": "300"}
"""For how many seconds W&B's package waits for the process that it starts; else 30."""
BEGAN = 1_700_000_000.25


@pytest.fixture(scope="module")
def on_port() -> bool:
    return True


def loss(step: int) -> float:
    return math.nan if step == 7 else 1 / (step + 1)


@pytest.fixture
def run_id(dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that trains, with two series of different steps; one step has two values."""
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    started = dashboard.launch(name="wide net", project="paper", lr=0.5)
    node.report(task := node.task(), "running")
    losses = [(step, loss(step), BEGAN + step) for step in range(STEPS)]
    node.log_points(task, 0, train__loss=losses)
    node.log_points(task, 10, val__loss=[(10, 0.5, BEGAN + 10), (10, 0.4, BEGAN + 10.5), (20, 0.3, BEGAN + 20)])
    return started


def mirror(folder: Path, run_id: str, *options: str) -> list[dict[str, Any]]:
    """Run the command as a process, offline: W&B's package keeps processes of its own."""
    env = os.environ | {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), "HOME": str(folder)} | PATIENT
    argv = [
        sys.executable,
        "-m",
        "cli.main",
        "mirror",
        run_id,
        "--to",
        "wandb://team/paper",
        "--json",
        *options,
    ]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return list(json.loads(done.stdout))


@pytest.mark.real
def test_an_ended_run_is_copied_once_with_every_point(
    run_id: str,
    dashboard: Running,
    node: FakeNode,
    tmp_path: Path,
    imported: Callable[..., list[dict[str, Any]]],
) -> None:
    (folder := tmp_path / "team").mkdir()
    (waiting,) = mirror(folder, run_id)
    assert (waiting["points"], waiting["is_ended"], waiting["url"]) == (0, False, "")
    node.report(node.task(), "failed", exit_code=3, reason="script error", message="x")
    (copied,) = mirror(folder, run_id)
    assert (copied["points"], copied["is_ended"]) == (STEPS + 3, True)
    (file,) = folder.glob(f"wandb/offline-run-*-{run_id}/run-{run_id}.wandb")
    before = file.stat()
    assert mirror(folder, run_id)[0]["points"] == 0
    assert len(list(folder.glob("wandb/offline-run-*"))) == 1 and file.stat().st_size == before.st_size
    ours = dashboard.http.get(f"/api/runs/{run_id}/metrics").json()
    (back,) = imported(file)  # as W&B's records are read, which tests/cli/importers compares with the package
    theirs = dashboard.http.get(f"/api/runs/{back['id']}/metrics").json()
    theirs.pop("step", None)
    assert {name: [point[:2] for point in points] for name, points in theirs.items()} == {
        name: [point[:2] for point in points] for name, points in ours.items()
    }
    for name, points in ours.items():
        assert [wall for *_, wall in theirs[name]] == pytest.approx([wall for *_, wall in points], abs=1e-3)
    copy = dashboard.run(back["id"])
    assert (copy["name"], copy["state"]) == ("wide net", "failed")
    settings = dashboard.http.get(f"/api/runs/{back['id']}/loggers").json()["wandb"]
    assert settings["config"]["lr"] == 0.5 and settings["project"] == "paper"


def test_rows_are_the_same_whatever_the_order_of_series() -> None:
    logged = {"a": [[1, 1.0, 5.0], [1, 2.0, 6.0], [3, 3.0, 7.0]], "b": [[1, "NaN", 5.0], [2, 4.0, 8.0]]}
    rows = list(rows_of(logged))
    assert [(row["step"], row["_timestamp"]) for row in rows] == [(1, 5.0), (1, 6.0), (2, 8.0), (3, 7.0)]
    assert rows[0]["a"] == 1.0 and math.isnan(rows[0]["b"]) and rows[1]["a"] == 2.0
    assert repr([sorted(row.items()) for row in rows_of(dict(reversed(logged.items())))]) == repr(
        [sorted(row.items()) for row in rows]
    )


@pytest.mark.parametrize("url", ["wandb:", "wandb://", "wandb://key@team/paper", "wandb://team/paper/more"])
def test_an_odd_address_is_refused(run_id: str, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["mirror", run_id, "--to", url]) == 2
    assert "wandb://ENTITY/PROJECT" in capsys.readouterr().err
