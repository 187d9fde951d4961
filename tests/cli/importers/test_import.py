"""Past runs become ended runs, point by point; interrupted and repeated imports store every point once."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from cli import main
from cli.commands.runs import importing as importing
from tests.cli.importers import stores
from tests.dashboard.running import Running

Import = Callable[..., list[dict[str, Any]]]
Curve = list[list[Any]]


def write_run(folder: Path, steps: int = 30) -> None:
    """Event files of one run, with a NaN, and hyperparameters as `add_hparams` writes them."""
    with SummaryWriter(str(folder)) as writer:
        for step in range(steps):
            writer.add_scalar("train/loss", math.nan if step == 3 else 1 / (step + 1), step, 1_700_000_000 + step)
            writer.add_scalar("train/lr", 0.1, 10 * step, 1_700_000_000 + step)
        writer.add_hparams({"lr": 0.1, "optimizer": "sgd"}, {"best": 0.5})


def stored(dashboard: Running, run_id: str) -> dict[str, Curve]:
    return dict(dashboard.http.get(f"/api/runs/{run_id}/metrics").json())


def as_tensorboard_reads(folder: Path) -> dict[str, Curve]:
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [[e.step, e.value if math.isfinite(e.value) else "NaN", e.wall_time] for e in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_event_files_become_ended_runs(dashboard: Running, imported: Import, tmp_path: Path) -> None:
    for name in ("small", "large/a"):
        write_run(tmp_path / "runs" / name)
    first = imported(tmp_path / "runs", "--project", "past")
    assert {run["name"] for run in first} == {"small", "large/a"} and all(run["is_new"] for run in first)
    for row in first:
        curves, run = stored(dashboard, row["id"]), dashboard.run(row["id"])
        inner = {name for name in curves if ":" in name}
        theirs = as_tensorboard_reads(tmp_path / "runs" / row["name"])
        assert {name: curve for name, curve in curves.items() if name not in inner} == theirs
        assert inner == {"hparams:best"}
        assert row["points"] == sum(map(len, curves.values())) and row["series"] == len(curves)
        assert (run["imported_from"], run["state"], run["project"]) == ("tensorboard", "stopped", "past")
        assert "do not say how" in run["message"] and run["ended_at"] > run["started_at"] > 1_000_000_000
        settings = dashboard.http.get(f"/api/runs/{row['id']}/loggers").json()
        assert settings == {"tensorboard": {"config": {"lr": 0.1, "optimizer": "sgd"}}}
    again = imported(tmp_path / "runs")
    assert [row | {"is_new": True} for row in again] == first and not any(row["is_new"] for row in again)
    assert len(dashboard.http.get("/api/runs").json()) == 2


def test_an_interrupted_import_is_said_to_be_one_and_goes_on(
    dashboard: Running, imported: Import, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run")
    monkeypatch.setattr(importing, "BATCH_POINTS", 7)
    answers = iter(range(3))

    def interrupt(line: str) -> None:
        if next(answers, None) is None:
            raise KeyboardInterrupt

    monkeypatch.setattr(importing, "_show_progress", interrupt)
    assert main.run(["import", str(tmp_path / "run")]) == 130
    (half,) = dashboard.http.get("/api/runs").json()
    assert (half["state"], half["imported_from"]) == ("stopped", "tensorboard")
    assert half["message"] == "Its import has not finished: import it again to complete it."
    assert 0 < sum(map(len, stored(dashboard, half["id"]).values())) < 61
    monkeypatch.undo()
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    (whole,) = imported(tmp_path / "run")
    assert (whole["id"], whole["points"]) == (half["id"], 61)
    theirs = as_tensorboard_reads(tmp_path / "run")
    assert {name: stored(dashboard, whole["id"])[name] for name in theirs} == theirs


def test_a_run_that_has_grown_is_imported_into_the_same_run(
    dashboard: Running, imported: Import, tmp_path: Path
) -> None:
    write_run(tmp_path / "run", steps=5)
    (first,) = imported(tmp_path / "run")
    with SummaryWriter(str(tmp_path / "run")) as writer:
        writer.add_scalar("val/loss", 0.5, 5)
    (second,) = imported(tmp_path / "run")
    assert (second["id"], second["points"], second["is_new"]) == (first["id"], first["points"] + 1, True)
    assert sum(map(len, stored(dashboard, first["id"]).values())) == second["points"]


def test_an_imported_run_cannot_be_resumed(dashboard: Running, imported: Import, tmp_path: Path) -> None:
    write_run(tmp_path / "run", steps=2)
    (row,) = imported(tmp_path / "run")
    refused = dashboard.http.post(f"/api/runs/{row['id']}/resume", json={})
    assert refused.status_code == 409 and "its code and checkpoints are not here" in refused.text
    assert dashboard.http.post(f"/api/runs/{row['id']}/stop").json()["state"] == "stopped"
    assert dashboard.http.delete(f"/api/runs/{row['id']}").status_code == 200
    (again,) = imported(tmp_path / "run")
    assert again["is_new"] and again["id"] != row["id"]


def test_a_path_without_runs_is_refused(
    dashboard: Running, imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["import", str(tmp_path)]) == 1
    assert "has no event files" in capsys.readouterr().err
    assert main.run(["import", str(tmp_path / "missing")]) == 2


def test_import_names_what_it_leaves_out_with_exit_code_1(
    dashboard: Running, imported: Import, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores.mlflow(tmp_path / "cut").write_bytes(b"")
    stores.mlflow(tmp_path / "healthy")
    write_run(tmp_path / "runs", steps=2)
    for _ in range(2):  # a second import changes nothing, and says the same
        assert main.run(["import", str(tmp_path), "--json"]) == 1
        shown = capsys.readouterr()
        assert str(tmp_path / "cut" / "1" / "abc" / "meta.yaml") in shown.err and "healthy" not in shown.err
        assert sorted(row["points"] for row in json.loads(shown.out)) == [5, 40, 40]
    assert len(dashboard.http.get("/api/runs").json()) == 3
