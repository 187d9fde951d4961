"""Every importer yields the points, hyperparameters and end that the logger's files hold."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.importers import neptune, wandb
from cli.importers.left_out import LeftOut
from cli.importers.past_run import PastRun
from tests.cli.importers.logged_runs import WALL, history, neptune_points, write_neptune, write_wandb
from tests.worker.probe.loggers import wandb_files
from worker.loggers.wandb_run import NO_END


def curves(run: PastRun) -> dict[str, list[tuple[int, float, float]]]:
    read: dict[str, list[tuple[int, float, float]]] = {}
    for batch in run.points():
        for name, points in batch.items():
            read.setdefault(name, []).extend(points)
    return read


def wandb_records() -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    run, metric, best, end = Record(), Record(), Record(), Record()
    run.run.run_id, run.run.project, run.run.display_name = "abc", "vision", "wide net"
    run.run.tags.append("paper")
    run.run.start_time.seconds = WALL
    run.run.config.update.add(key="lr", value_json="0.1")
    run.run.config.update.add(key="_wandb", value_json="{}")
    metric.metric.name, metric.metric.step_metric = "val/loss", "epoch"
    best.summary.update.add(key="best", value_json="0.25")
    end.exit.exit_code = 0
    rows = [history(step, train__loss=1 / (step + 1), image={"_type": "image"}) for step in range(2000)]
    rows += [
        history(2000, epoch=1),
        history(2001, **{"val/loss": 0.5}),
        history(2003, bad="NaN", text="x" * BIG),
    ]
    return [run, metric, *rows, best, history(2004, last=-3), end]


BIG = 70_000
"""Bytes: more than two blocks."""


def test_wandb_files_are_read_as_the_package_reads_them(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    file = tmp_path / "wandb" / "offline-run-20260101_000000-abc" / "run-abc.wandb"
    write_wandb(file, wandb_records())
    (run,) = wandb.past_runs(tmp_path, LeftOut())
    read, theirs = curves(run), wandb_files.curves(file)
    assert math.isnan(read.pop("bad")[0][1]) and math.isnan(theirs.pop("bad")[0][1])
    assert {name: [(step, value) for step, value, _ in points] for name, points in read.items()} == theirs
    assert len(read["train.loss"]) == 2000 and read["val/loss"] == [(1, 0.5, WALL + 2001 / 2)]
    assert (run.name, run.state, run.started_at) == ("wide net", "succeeded", WALL)
    assert run.settings == {
        "config": {"lr": 0.1}, "tags": ["paper"], "project": "vision", "summary": {"best": 0.25},
    }  # fmt: skip


def test_a_wandb_file_without_its_end_or_with_damage_gives_what_is_whole(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    file = tmp_path / "run-abc.wandb.d" / "run-abc.wandb"
    write_wandb(file, wandb_records())
    content = bytearray(file.read_bytes())
    content[20_000] ^= 1
    file.write_bytes(content[:-3])
    (run,) = wandb.past_runs(file, LeftOut())
    assert (run.state, run.message) == ("failed", NO_END)
    read = curves(run)
    assert set(read) == {"train.loss", "epoch", "val/loss", "bad", "last"}
    missing = set(range(2000)) - {step for step, _, _ in read["train.loss"]}
    assert len(missing) == 1


def test_neptune_exports_are_read_part_by_part(tmp_path: Path) -> None:
    created = datetime.fromtimestamp(WALL, UTC)
    rows: list[dict[str, Any]] = [
        {"attribute_path": "sys/name", "attribute_type": "string", "string_value": "wide net"},
        {"attribute_path": "sys/creation_time", "attribute_type": "datetime", "datetime_value": created},
        {"attribute_path": "sys/failed", "attribute_type": "bool", "bool_value": False},
        {"attribute_path": "sys/tags", "attribute_type": "string_set", "string_set_value": ["paper"]},
        {"attribute_path": "lr", "attribute_type": "float", "float_value": 0.1},
    ]
    write_neptune(tmp_path / "data", 0, rows + neptune_points("train/loss", range(3)))
    write_neptune(tmp_path / "data", 1, neptune_points("train/loss", [3]) + neptune_points("val", [0.5, 1.5]))
    (run,) = neptune.past_runs(tmp_path, LeftOut())
    assert (run.name, run.state, run.started_at) == ("wide net", "succeeded", WALL)
    assert run.settings == {"config": {"lr": 0.1}, "tags": ["paper"], "project": "team/vision"}
    assert curves(run) == {
        "train/loss": [(step, float(step), float(WALL + step)) for step in range(4)],
        "val": [(0, 0.5, WALL + 0.5), (1, 1.5, WALL + 1.5)],
    }
