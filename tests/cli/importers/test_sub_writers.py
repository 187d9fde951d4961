"""One writer is one run: what it makes in sub-folders, for `add_scalars` and `add_hparams`, belongs to it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import tensorboardX
from torch.utils.tensorboard import SummaryWriter

from cli.importers import tensorboard
from cli.importers.past_run import LeftOut
from domain.spec import RunSpec
from tests.cli.importers.imported_curves import curves
from tests.worker.fake_server import FakeServer
from tests.worker.sendings import upload_remaining
from worker.attempt.uploader import AttemptUploader
from worker.loggers.stores import SETTINGS_FILE
from worker.node.attempt_files import EXISTING_FILE
from worker.session.client import TaskRef
from worker.streams.points import line_name

NAMES = {"lr", "loss/train", "loss/val", "a/per class/cat", "a/per class/dog/wolf", "hparams:best_acc"}
HYPERPARAMETERS = {"lr": 0.1, "depth": 3, "opt": "adam", "amp": True}


def write(folder: Path, writer_class: type = SummaryWriter, lr: float = 0.1) -> None:
    writer = writer_class(str(folder))
    for step in range(5):
        writer.add_scalars("loss", {"train": 1 / (step + 1), "val": 2 / (step + 1)}, step)
        writer.add_scalars("a/per class", {"cat": step, "dog/wolf": -step}, step)
        writer.add_scalar("lr", lr, step)
    writer.add_hparams(HYPERPARAMETERS | {"lr": lr}, {"best_acc": lr * 2})
    writer.close()


def plain(names: set[str]) -> set[str]:
    """Names as torch has them: tensorboardX writes an underscore for a space."""
    return {name.replace("per_class", "per class") for name in names}


@pytest.mark.parametrize("writer_class", [SummaryWriter, tensorboardX.SummaryWriter])
def test_two_writers_are_two_runs(tmp_path: Path, writer_class: type) -> None:
    for name, lr in (("a", 0.1), ("b", 0.01)):
        write(tmp_path / name, writer_class, lr)
    left_out = LeftOut()
    runs = {run.name: run for run in tensorboard.past_runs(tmp_path, left_out)}
    assert set(runs) == {"a", "b"} and not left_out
    for name, lr in (("a", 0.1), ("b", 0.01)):
        assert plain(set(curves(runs[name]))) == NAMES
        assert runs[name].settings == {"config": HYPERPARAMETERS | {"lr": lr}}
    assert [point[1] for point in curves(runs["a"])["loss/val"]] == pytest.approx([2, 1, 2 / 3, 0.5, 0.4])


def test_two_writers_of_one_folder_at_once_are_two_lines_and_a_later_life_goes_on(tmp_path: Path) -> None:
    at_once = [SummaryWriter(str(tmp_path / "a"), filename_suffix=suffix) for suffix in ("", ".val")]
    for step in range(5):
        for number, writer in enumerate(at_once):
            writer.add_scalar("loss", 10 * number + step, step)
            writer.add_scalar(f"only/{number}", step, step)
    for writer in at_once:
        writer.close()
    for first in (0, 3):
        with SummaryWriter(str(tmp_path / "b"), filename_suffix=f".{first}") as writer:
            for step in range(first, first + 5):
                writer.add_scalar("loss", 10 * first + step, step)
    shutil.copytree(tmp_path / "b", tmp_path / "copied", copy_function=shutil.copyfile)
    runs = {run.name: run for run in tensorboard.past_runs(tmp_path, LeftOut())}
    assert {name: len(points) for name, points in curves(runs["a"]).items()} == dict.fromkeys(
        ("loss", "val:loss", "only/0", "only/1"), 5
    )
    for name in ("b", "copied"):
        assert {series: len(points) for series, points in curves(runs[name]).items()} == {"loss": 10}


def test_a_run_in_the_folder_of_another_stays_a_run(tmp_path: Path) -> None:
    write(tmp_path / "runs")
    write(tmp_path / "runs" / "loss_2")
    with SummaryWriter(str(tmp_path / "runs" / "fine_tuned")) as writer:
        writer.add_scalar("loss", 1.0, 0)
    run_names = {run.name for run in tensorboard.past_runs(tmp_path, LeftOut())}
    assert run_names == {"runs", "runs/loss_2", "runs/fine_tuned"}


def test_hyperparameters_in_a_folder_with_a_name_belong_to_the_run(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "run")) as writer:
        writer.add_hparams({"lr": 0.1}, {"best": 0.5}, run_name="trial")
    (run,) = tensorboard.past_runs(tmp_path, LeftOut())
    assert set(curves(run)) == {"trial:best"} and run.settings == {"config": {"lr": 0.1}}


@pytest.mark.parametrize("writer_class", [SummaryWriter, tensorboardX.SummaryWriter])
def test_a_live_run_has_the_same_names_and_hyperparameters(tmp_path: Path, writer_class: type) -> None:
    for name in ("work", "logs", "worker"):
        (tmp_path / name).mkdir()
    (tmp_path / EXISTING_FILE).parent.mkdir(exist_ok=True)
    (tmp_path / EXISTING_FILE).write_text("{}")
    os.utime(tmp_path / EXISTING_FILE, (1, 1))
    write(tmp_path / "work/runs/a", writer_class)
    write(tmp_path / "work/runs/b", writer_class, 0.01)
    server = FakeServer()
    uploader = AttemptUploader(tmp_path, RunSpec(target="/a.py"), server, TaskRef(1, 0), "a/1")
    while upload_remaining(uploader, server):
        pass
    names = plain(set(server.series))
    others = {name for name in names if name.startswith("runs/b")}
    assert names - others == NAMES
    assert others == {f"runs/b:{n}" for n in NAMES if ":" not in n} | {"runs/b/hparams:best_acc"}
    assert not any(re.search(r"\d{9}", name) for name in names)
    (line,) = (tmp_path / SETTINGS_FILE).read_text().splitlines()
    of_b = {f"runs/b:{name}": value for name, value in (HYPERPARAMETERS | {"lr": 0.01}).items()}
    assert json.loads(line)["logger"] == "tensorboard"
    assert json.loads(line)["settings"] == {"config": HYPERPARAMETERS | of_b}


@pytest.mark.parametrize(
    ("tag", "folder", "name"),
    [
        ("loss", "loss_train", "loss/train"),
        ("a/loss", "a_loss_train", "a/loss/train"),
        ("loss", "loss/train", "loss/train"),
        ("per_class", "per class_dog/wolf", "per_class/dog/wolf"),
        ("loss", "loss_", None),
        ("loss", "losses", None),
        ("loss", "other", None),
        ("", "_x", None),
    ],
)
def test_a_line_is_told_by_its_folder(tag: str, folder: str, name: str | None) -> None:
    assert line_name(tag, folder) == name
