"""Folders as people have them (`tests/cases`): what comes in, what is named, and what stays as it was."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cli import main
from tests.dashboard.running import Running

CASES = Path(__file__).parents[2] / "cases"
MADE = {"loss/train", "loss/val", "per class/cat", "per class/dog/wolf", "lr", "hparams:best_acc"}


class Imported(NamedTuple):
    """What importing a folder gave."""

    code: int
    rows: list[dict[str, Any]]
    output: str


Import = Callable[[Path], Imported]


@pytest.fixture
def imported(dashboard: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Import:
    """Import a path with the command line."""
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

    def run(path: Path) -> Imported:
        code = main.run(["import", str(path), "--json"])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return Imported(code, json.loads(shown.out or "[]"), shown.err)

    return run


def make(case: str, folder: Path, *args: str) -> None:
    subprocess.run([sys.executable, CASES / case / "make.py", folder, *args], check=True, capture_output=True)


def curves(dashboard: Running, run_id: str) -> dict[str, list[list[Any]]]:
    return dict(dashboard.http.get(f"/api/runs/{run_id}/metrics").json())


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in rows}


def test_two_lives_in_one_folder_have_one_value_a_step(dashboard: Running, imported: Import, tmp_path: Path) -> None:
    make("06-steps-back", tmp_path)
    runs = by_name(imported(tmp_path).rows)
    assert runs.keys() == {"purged", "plain"}
    for row in runs.values():
        points = curves(dashboard, row["id"])["loss"]
        assert [step for step, *_ in points] == [*range(200)]
        assert [value for _, value, _ in points] == [*range(100), *range(1100, 1200)]


@pytest.mark.long
def test_folder_of_a_sub_writer_belongs_to_its_run(dashboard: Running, imported: Import, tmp_path: Path) -> None:
    make("08-add-scalars", tmp_path)
    runs = by_name(imported(tmp_path).rows)
    assert runs.keys() == {"a", "b"}
    for name, lr in (("a", 0.1), ("b", 0.01)):
        curves_found = curves(dashboard, runs[name]["id"])
        assert curves_found.keys() == MADE and len(curves_found["loss/val"]) == 50
        assert curves_found["hparams:best_acc"][-1][1] == pytest.approx(2 * lr)
        settings = dashboard.http.get(f"/api/runs/{runs[name]['id']}/loggers").json()
        assert settings["tensorboard"]["config"] == {"lr": lr, "depth": 3.0, "opt": "adam", "amp": True}


def test_damaged_runs_of_mlflow_hide_no_healthy_one(dashboard: Running, imported: Import, tmp_path: Path) -> None:
    make("19-mlflow-damage", tmp_path)
    code, rows, output = imported(tmp_path)
    assert code == 1
    runs = by_name(rows)
    assert "deleted" not in runs
    for name in ("healthy", "five fields", "still running", "torn line", "zeros", "not utf8"):
        curves_found = curves(dashboard, runs[name]["id"])
        assert {series: len(points) for series, points in curves_found.items()} == {"loss": 20, "val/acc top 1": 20}
        assert [value for _, value, _ in curves_found["loss"][:3]] == ["NaN", "Infinity", "-Infinity"]
    damaged = ("empty meta", "cut meta", "bad bytes meta", "torn line")
    folders = [file.parents[1] for file in tmp_path.rglob("mlflow.runName") if file.read_text() in damaged]
    assert len(folders) == 4 and all(str(folder) in output for folder in folders)
    healthy = next(f.parents[1] for f in tmp_path.rglob("mlflow.runName") if f.read_text() == "healthy")
    assert str(healthy) not in output
    assert sorted(row["points"] for row in imported(tmp_path).rows) == sorted(row["points"] for row in rows)


@pytest.mark.long
def test_folders_of_one_id_of_wandb_are_one_run(dashboard: Running, imported: Import, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    make("20-wandb-same-id", tmp_path)
    first = imported(tmp_path)
    assert first.code == 1 and "empty0" in first.output and "header" in first.output
    row = next(row for row in first.rows if row["points"])
    points = curves(dashboard, row["id"])["loss"]
    steps, values = [step for step, *_ in points], [value for _, value, _ in points]
    assert steps == [*range(len(steps))] and 60 < len(steps) <= 100
    part = [0] * 30 + [1000] * 30 + [2000] * (len(steps) - 60)
    assert values == [base + step for base, step in zip(part, steps, strict=True)]
    assert dashboard.run(row["id"])["state"] != "succeeded"
    again = imported(tmp_path)
    assert not any(row["is_new"] for row in again.rows) and curves(dashboard, row["id"])["loss"] == points


@pytest.mark.long
def test_a_locked_store_of_trackio_is_named_and_comes_in_later(
    dashboard: Running, imported: Import, tmp_path: Path
) -> None:
    argv = [sys.executable, str(CASES / "21-trackio-busy" / "make.py"), str(tmp_path), "hold"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
            code, rows, output = imported(tmp_path)
        finally:
            holder.kill()
    assert (code, rows) == (1, []) and "my project.db" in output
    (database, wal) = (tmp_path / f"my project.db{end}" for end in ("", "-wal"))
    before = hashlib.sha256(database.read_bytes()).digest(), wal.exists()
    runs = imported(tmp_path).rows
    assert len(runs) == 2 and {row["name"] for row in runs} == {"slurm array"}
    firsts = []
    for row in runs:
        curves_found = curves(dashboard, row["id"])
        assert len(curves_found["train/loss"]) == 50 and not {"sample", "table", "text"} & curves_found.keys()
        firsts.append(curves_found["train/loss"][0][1])
    assert sorted(firsts) == [1, 5]
    assert (hashlib.sha256(database.read_bytes()).digest(), wal.exists()) == before
