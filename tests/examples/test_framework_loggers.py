"""Frameworks that log with W&B for their users: the curves are those that the framework itself wrote down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.trained import EXAMPLES, Examples, Trained
from tests.worker.probe.loggers import wandb_files

pytestmark = pytest.mark.long

Curve = list[tuple[int, float]]


def with_wandb(example: str, folder: Path) -> Path:
    """The example with W&B where it says tensorboard."""
    text = (EXAMPLES / example).read_text()
    script = folder / example
    script.write_text(text.replace('"tensorboard"', '"wandb"'))
    assert script.read_text() != text
    return script


def logged_by_wandb(trained: Trained) -> dict[str, Curve]:
    """The curves of the store, which are those in W&B's own file."""
    (file,) = trained.work.glob("wandb/offline-run-*/run-*.wandb")
    curves = {name: [(step, value) for step, value, _ in points] for name, points in trained.curves().items()}
    assert curves == wandb_files.curves(file)
    return curves


def test_every_point_of_hf_trainer_is_in_its_own_state(examples: Examples, tmp_path: Path):
    pytest.importorskip("transformers")
    pytest.importorskip("wandb")
    script = with_wandb("hf_trainer.py", tmp_path)
    trained = examples.run(str(script), "--max-steps", "60")
    curves = logged_by_wandb(trained)
    state = json.loads((trained.work / "output/checkpoint-60/trainer_state.json").read_text())
    theirs = curves_of(state["log_history"])
    assert len(theirs["train/loss"]) == 12 and len(theirs["eval/loss"]) == 2
    own = {name: curves[name][: len(points)] for name, points in theirs.items()}
    assert own == theirs  # the end of the training is logged behind its last checkpoint
    logged = trained.product.get(f"/api/runs/{trained.id}/loggers")["wandb"]
    assert logged["config"]["max_steps"] == 60 and logged["config"]["n_layer"] == 2


def test_without_a_logger_the_trainers_state_is_read(examples: Examples, tmp_path: Path):
    pytest.importorskip("transformers")
    text = (EXAMPLES / "hf_trainer.py").read_text()
    script = tmp_path / "hf_trainer.py"
    script.write_text(text.replace('"tensorboard"', '"none"'))
    assert script.read_text() != text
    trained = examples.run(str(script), "--max-steps", "60")
    state = json.loads((trained.work / "output/checkpoint-60/trainer_state.json").read_text())
    curves = {name: [(step, value) for step, value, _ in points] for name, points in trained.curves().items()}
    assert curves == curves_of(state["log_history"]) and len(curves["train/loss"]) == 12
    assert trained.product.get(f"/api/runs/{trained.id}/loggers")["trainer"]["config"]["max_steps"] == 60


def curves_of(rows: list[dict[str, Any]]) -> dict[str, Curve]:
    """The history of `trainer_state.json`, named as the Trainer names it for its loggers."""
    from transformers.integrations.integration_utils import rewrite_logs

    curves: dict[str, Curve] = {}
    for row in rows:
        step = row.pop("step")
        for name, value in rewrite_logs(row).items():
            curves.setdefault(name, []).append((step, float(value)))
    return curves


def test_every_point_of_accelerates_tracker_is_the_one_it_wrote(examples: Examples, tmp_path: Path):
    pytest.importorskip("accelerate")
    pytest.importorskip("wandb")
    trained = examples.run(str(with_wandb("accelerate_loop.py", tmp_path)))
    curves = logged_by_wandb(trained)
    assert [step for step, _ in curves["train/loss"]] == list(range(5, 97, 5))
    assert trained.product.get(f"/api/runs/{trained.id}/loggers")["wandb"]["config"]
