"""W&B as scripts use it: two ranks of gloo; the probe records what W&B's own file holds, point by point."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.worker.probe.loggers import logged, wandb_files
from tests.worker.probe.watched import TORCHRUN, Watched

pytest.importorskip("wandb")
pytestmark = [pytest.mark.real, pytest.mark.training]
TRAINING = """
import wandb

run = wandb.init(project="tests", tags=["short"], config={"lr": 0.05, "model": {"width": 4}}) if IS_FIRST else None
if run:
    run.define_metric("val/*", step_metric="epoch")
    run.define_metric("val/lr", step_metric="fraction")
for step, loss in losses(6):
    if run:
        wandb.log({"train": {"loss": loss, "deep": {"lr": 0.1}}, "text": "no curve", "none": None})
if run:
    run.log({"first": 1}, commit=False)
    run.log({"second": torch.tensor([2.5]), "array": torch.ones(3)})
    for value in range(4):
        run.log({"overwritten": value}, step=20)
    run.log({"ignored": 1}, step=3)
    run.log({"val/loss": 0.5, "epoch": 1}, step=30)
    run.log({"val/loss": 0.25})
    run.log({"val/lr": 0.1, "fraction": 0.5})
    run.log({})
    run.log({"nan": float("nan"), "inf": -float("inf"), "flag": True}, step=50, commit=True)
    run.log({"last": 7}, commit=False)
    run.config.update({"late": [1, 2]})
    run.summary["best"] = 0.25
    print("logged", run.step >= 51, flush=True)
    run.finish()
dist.destroy_process_group()
"""


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_every_point_is_the_one_that_wandb_wrote(watched: Watched, tmp_path: Path):
    script = watched.script(logged.TRAINING + TRAINING)
    home = {"HOME": str(tmp_path), "WANDB_SILENT": "true"}
    out = watched.run([*TORCHRUN, "--nproc-per-node=2", script], env=watched.environment(**home))
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    curves, theirs = logged.curves(watched.records.parent), wandb_files.curves(file)
    nan = curves.pop("nan")
    assert math.isnan(nan[0][1]) and [(nan[0][0], "nan")] == [(s, str(v)) for s, v in theirs.pop("nan")]
    assert curves == theirs
    assert "logged True" in out
    assert logged.read_from_disk(watched.records.parent, tmp_path) == {}
    assert [step for step, _ in curves["train.loss"]] == list(range(6))
    assert curves["overwritten"] == [(20, 3.0)] and "ignored" not in curves
    assert curves["val/loss"] == [(1, 0.25)] and curves["val/lr"] == [(31, 0.1)]
    settings = logged.settings(watched.records.parent)
    assert settings["config"] == wandb_files.config(file) | {"late": [1, 2]}
    assert settings["tags"] == ["short"] and settings["summary"] == {"best": 0.25}
    assert (settings["mode"], settings["offline_because"]) == ("offline", "no API key")


EVERYWHERE = """
import wandb
run = wandb.init(project="tests", mode="offline")
for step, loss in losses(3):
    run.log({"loss": loss})
run.finish()
dist.destroy_process_group()
"""


@pytest.mark.long
def test_runs_of_other_ranks_are_not_read_from_the_disk_either(watched: Watched, tmp_path: Path):
    script = watched.script(logged.TRAINING + EVERYWHERE)
    watched.run([*TORCHRUN, "--nproc-per-node=2", script], env=watched.environment(HOME=str(tmp_path)))
    assert len(list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))) == 2
    assert len(logged.curves(watched.records.parent)["loss"]) == 3
    assert logged.read_from_disk(watched.records.parent, tmp_path) == {}


SEVERAL = """
import wandb
from torch.utils.tensorboard import SummaryWriter

if IS_FIRST:
    run, writer = wandb.init(mode="disabled"), SummaryWriter("events")
for step, loss in losses(4):
    if IS_FIRST:
        wandb.log({"loss": loss, "other": 1.0 + step, "own": step})
        writer.add_scalar("loss", loss, step)
        writer.add_scalar("other", 2.0, step)
if IS_FIRST:
    writer.close()
    run.finish()
dist.destroy_process_group()
"""


@pytest.mark.long
def test_beside_event_files_equal_values_are_left_to_them(watched: Watched, tmp_path: Path):
    script = watched.script(logged.TRAINING + SEVERAL)
    watched.run([*TORCHRUN, "--nproc-per-node=2", script], env=watched.environment(HOME=str(tmp_path)))
    assert logged.curves(watched.records.parent) == {
        "wandb:other": [(step, 1.0 + step) for step in range(4)],
        "own": [(step, float(step)) for step in range(4)],
    }
