"""Every importer yields the points, hyperparameters and end that the logger's files hold."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.importers import neptune, wandb
from cli.importers.past_run import LeftOut
from tests.cli.importers.imported_curves import curves
from tests.cli.importers.logged_runs import WALL, history, neptune_points, write_neptune, write_wandb
from tests.worker.probe.loggers import wandb_files
from worker.loggers.wandb import NO_END


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


def wandb_part(number: int, begin: int, end: int, exit_code: int | None, run_id: str = "chunked") -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    run, last = Record(), Record()
    run.run.run_id, run.run.project, run.run.start_time.seconds = run_id, "parts", WALL + number
    run.run.config.update.add(key="lr", value_json="0.1")
    last.exit.exit_code = exit_code or 0
    rows = [history(step, loss=1000 * number + step, deep__x=step) for step in range(begin, end)]
    return [run, *rows] + [last] * (exit_code is not None)


def write_parts(root: Path) -> list[Path]:
    """Three processes of one run, the last one killed, a run of another id, and two files without a record."""
    parts = [(0, 0, 40, 0), (1, 30, 70, 0), (2, 60, 100, None)]
    files = [root / "wandb" / f"offline-run-2026_{part[0]}-chunked" / "run-chunked.wandb" for part in parts]
    for file, part in zip(files, parts, strict=True):
        write_wandb(file, wandb_part(*part))
    files[2].write_bytes(files[2].read_bytes()[:-5])
    write_wandb(root / "wandb" / "offline-run-2026-other" / "run-other.wandb", wandb_part(0, 0, 3, 0, "other"))
    for name, content in (("empty", b""), ("header", b":W&B\xee\x1b\0")):
        (root / "wandb" / name).mkdir()
        (root / "wandb" / name / f"run-{name}.wandb").write_bytes(content)
    return files


def test_wandb_folders_of_one_id_are_one_run(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    files, left_out = write_parts(tmp_path), LeftOut()
    other, run = sorted(wandb.past_runs(tmp_path, left_out), key=lambda run: run.name != "other")
    expected = [*range(30), *range(1030, 1060), *range(2060, 2099)]  # the last row is torn
    assert [(step, value) for step, value, _ in sorted(curves(run)["loss"])] == list(enumerate(expected))
    assert [step for step, _, _ in curves(run)["deep.x"]] == [*range(99)]
    assert (run.state, run.message, run.started_at) == ("failed", NO_END, WALL)
    assert len(curves(other)["loss"]) == 3 and other.state == "succeeded"
    assert {line.split(": ")[0] for line in left_out.lines()} == {
        str(file) for file in (files[2], *(tmp_path / f"wandb/{n}/run-{n}.wandb" for n in ("empty", "header")))
    }


def test_fractional_steps_of_neptune_go_on_in_the_next_part(tmp_path: Path) -> None:
    write_neptune(tmp_path, 0, neptune_points("loss", [0, 1]) + neptune_points("acc", [0, 1]))
    write_neptune(tmp_path, 1, neptune_points("loss", [1.5, 2.5]) + neptune_points("acc", [2, 3]))
    write_neptune(tmp_path, 2, neptune_points("loss", [3]))
    (run,) = neptune.past_runs(tmp_path, LeftOut())
    assert [(step, value) for step, value, _ in curves(run)["loss"]] == [
        (0, 0),
        (1, 1),
        (2, 1.5),
        (3, 2.5),
        (4, 3),
    ]
    assert [step for step, _, _ in curves(run)["acc"]] == [0, 1, 2, 3]


def test_an_unreadable_part_of_neptune_is_named(tmp_path: Path) -> None:
    for part in range(3):
        write_neptune(tmp_path, part, neptune_points("loss", [part]))
    torn = tmp_path / "VIS-1_part_1.parquet"
    torn.write_bytes(torn.read_bytes()[:-100])
    left_out = LeftOut()
    (run,) = neptune.past_runs(tmp_path, left_out)
    assert [step for step, _, _ in curves(run)["loss"]] == [0, 2] and torn in left_out
