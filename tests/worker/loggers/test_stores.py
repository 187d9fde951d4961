"""What loggers write on the disk arrives as points exactly once, in whatever pieces it is written and read."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from domain.messages import PointBatch
from tests.cli.importers.logged_runs import WALL, history, write_wandb
from tests.worker.loggers.logging_node import Curve, Node
from tests.worker.probe.loggers import wandb_files
from tests.worker.sendings import done
from worker.loggers.stores import SETTINGS_FILE
from worker.node.run_files import LOGGERS


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_wandb_file_is_read_once_in_whatever_pieces_it_comes(node: Node, tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "run-abc.wandb"
    records = [history(step, train__loss=1 / (step + 1)) for step in range(500)]
    write_wandb(whole, [*records, history(500, big="x" * 70_000, last=1), history(501, last=2)])
    content, file = whole.read_bytes(), node.work / "wandb" / "run-abc" / "run-abc.wandb"
    file.parent.mkdir(parents=True)
    node.server.loses_replies = True
    pieces, written = random.Random(5), 0
    while written < len(content):
        written += pieces.choice([1, 3, 6, 7, 8, 50, 1000, 10_000])
        file.write_bytes(content[:written])
        if pieces.random() < 0.3:
            node.restart_worker()
        node.read()
    theirs = wandb_files.curves(whole)
    assert node.read(final=True) == theirs and len(theirs["train.loss"]) == 500


def test_the_x_axis_of_define_metric_survives_a_restart(node: Node, tmp_path: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    metric = Record()
    metric.metric.glob_name, metric.metric.step_metric = "val/*", "epoch"
    rows = [history(0, epoch=7), history(1, **{"val/loss": 0.5}), history(2, **{"val/loss": 0.25})]
    whole, file = tmp_path / "whole" / "run.wandb", node.work / "run.wandb"
    write_wandb(whole, [metric, *rows])
    content = whole.read_bytes()
    node.work.mkdir()
    file.write_bytes(content[:-20])
    assert node.read()["val/loss"] == [(7, 0.5)]
    node.restart_worker()
    file.write_bytes(content)
    assert node.read()["val/loss"] == [(7, 0.5), (7, 0.25)]


def test_a_damaged_record_of_wandb_costs_no_other(node: Node) -> None:
    file = node.log_to_wandb(*((step, float(step)) for step in range(2000)))
    content = bytearray(file.read_bytes())
    content[20_000] ^= 1
    file.write_bytes(content)
    assert len(node.read()["loss"]) == 1999


def test_torn_end_of_wandb_is_a_finding_once_its_writer_has_ended(node: Node) -> None:
    file = node.log_to_wandb(*((step, float(step)) for step in range(20)))
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    assert len(node.read()["loss"]) == 19 and node.omissions.findings() == []  # it may still be written
    file.write_bytes(whole + whole[-20:-5])
    assert len(node.read()["loss"]) == 20 and node.omissions.findings() == []
    for _ in range(2):
        assert len(node.read(final=True)["loss"]) == 20
        (finding,) = node.omissions.findings()
        assert "run-abc.wandb: its last 15 bytes are an incomplete record." in finding.evidence
        node.restart_worker()


@pytest.mark.parametrize("content", [b"junk", b"no record " * 50_000, b":W&B" + bytes(3) + b"x" * 40_000])
def test_a_wandb_file_without_any_record_is_a_finding(node: Node, content: bytes) -> None:
    file = node.work / "wandb" / "run-x" / "run-x.wandb"
    file.parent.mkdir(parents=True)
    file.write_bytes(content.ljust(20))
    assert node.read(final=True) == {}
    (finding,) = node.omissions.findings()
    assert "run-x.wandb" in finding.evidence


def test_the_lines_of_mlflow_are_read_when_they_are_whole(node: Node) -> None:
    node.log("train/loss", 10, 0.5)
    node.log("train/loss", 20, float("nan"))
    with (node.mlruns / "metrics/train/loss").open("a") as file:
        file.write(f"{WALL}000 0.")
        file.flush()
        read = node.read()["train/loss"]
        assert read[0] == (10, 0.5) and str(read[1]) == "(20, nan)" and len(read) == 2
        node.restart_worker()
        file.write("125 30\nno point\n")
    assert node.read()["train/loss"][2:] == [(30, 0.125)]


def test_a_worker_that_finds_all_points_sent_writes_the_settings_down(node: Node) -> None:
    """The one before it was killed before they were due."""
    node.log("loss", 0, 0.5)
    (node.mlruns / "params").mkdir()
    (node.mlruns / "params" / "lr").write_text("0.1")
    node.read()
    node.restart_worker()
    node.stores.look_again()
    assert done(node.stream.step()) == done(node.stream.step(final=True)) == 0
    (line,) = (node.folder / SETTINGS_FILE).read_text().splitlines()
    assert json.loads(line)["settings"]["config"] == {"lr": "0.1"}


def test_the_rows_of_mlflows_database_are_read_once(node: Node) -> None:
    node.work.mkdir()
    node.server.loses_replies = True
    with closing(sqlite3.connect(node.work / "mlflow.db")) as connection:
        connection.executescript(SCHEMA)
        for step in range(6000):
            row = ("loss", 1 / (step + 1), WALL * 1000 + step, "run1", step, False)
            connection.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", row)
            if step % 1500 == 0:
                connection.commit()
                node.restart_worker()
                node.read()
        connection.commit()
        assert node.read() == {"loss": [(step, 1 / (step + 1)) for step in range(6000)]}
    settings = json.loads((node.folder / SETTINGS_FILE).read_text().splitlines()[-1])
    assert settings["logger"] == "mlflow"
    assert settings["settings"] == {"config": {"lr": "0.1"}, "project": "vision"}


SCHEMA = """
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE runs (run_uuid TEXT PRIMARY KEY, experiment_id INTEGER);
CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN,
    PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan));
CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);
CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT);
INSERT INTO experiments VALUES (1, 'vision');
INSERT INTO runs VALUES ('run1', 1);
INSERT INTO params VALUES ('lr', '0.1', 'run1');
"""


def test_values_logged_before_the_attempt_are_not_taken(node: Node) -> None:
    node.log("loss", 1, 0.5, wall=WALL - 100)
    node.log("loss", 2, 0.25)
    assert node.read() == {"loss": [(2, 0.25)]}


def test_a_run_that_the_probe_sees_is_left_to_it(node: Node) -> None:
    file = node.log_to_wandb((1, 0.5))
    node.log("loss", 1, 0.25)
    node.log("seen by nobody", 1, 0.25)
    folder = node.folder / LOGGERS
    folder.mkdir(parents=True)
    (folder / "runs-12.jsonl").write_text(
        f'{{"t": 1, "logger": "wandb", "run": "{file}"}}\n{{"t": 1, "logger": "mlflow", "run": "abc"}}\n'
    )
    assert node.read(final=True) == {}
    assert not (node.folder / SETTINGS_FILE).exists()


def test_equal_values_of_two_loggers_are_one_series(node: Node) -> None:
    node.log_to_wandb(*((step, 1 / 3 + step) for step in range(5)))
    assert len(node.read()["loss"]) == 5
    node.restart_worker()
    for step in range(5):
        node.log("loss", step, round(1 / 3 + step, 7))
    assert set(node.read()) == {"loss"}
    assert node.read(final=True) == {"loss": [(step, 1 / 3 + step) for step in range(5)]}


def test_after_a_difference_the_second_is_named_after_its_logger(node: Node) -> None:
    node.log_to_wandb(*((step, float(step)) for step in range(5)))
    node.read()
    for step in range(3):
        node.log("loss", step, step if step < 1 else 9.0)
    expected: Curve = [(1, 9.0), (2, 9.0)]
    assert node.read()["mlflow:loss"] == expected
    node.restart_worker()
    node.log("loss", 3, 3.0)
    assert node.read()["mlflow:loss"] == [*expected, (3, 3.0)]


def test_beside_event_files_a_name_waits_for_them(node: Node) -> None:
    node.time.set_wall(WALL + 2.0)
    node.has_event_files = True
    for step in (1, 2):
        node.log("loss", step, 0.1 * step)
        node.log("own", step, 5.0)
    assert node.read() == {}
    events = PointBatch(
        path="work/events.out.tfevents.1.a", generation=0, start=0, end=9,
        series={"loss": [(1, 0.10000000149, WALL + 2.0)]},
    )  # fmt: skip
    node.names.stored(events)
    assert node.read() == {"own": [(1, 5.0), (2, 5.0)]}  # the first loss is the event file's, the second waits
    assert node.server.offsets["work/mlruns/0/abc/metrics/loss"] > 0
    node.time.set_wall(WALL + 1000.0)
    assert node.read()["mlflow:loss"] == [(2, 0.2)]


def test_hyperparameters_and_tags_are_passed_on(node: Node) -> None:
    node.log("loss", 1, 0.5)
    for folder, name, text in (
        ("params", "lr", "0.1"),
        ("tags", "kind", "short"),
        ("tags", "mlflow.user", "me"),
    ):
        (node.mlruns / folder).mkdir(exist_ok=True)
        (node.mlruns / folder / name).write_text(text)
    (node.mlruns.parent / "meta.yaml").write_text("name: vision\n")
    node.read()
    node.read()
    node.read()
    (line,) = (node.folder / SETTINGS_FILE).read_text().splitlines()
    assert json.loads(line)["settings"] == {
        "config": {"lr": "0.1"}, "tags": ["kind=short"], "project": "vision",
    }  # fmt: skip
