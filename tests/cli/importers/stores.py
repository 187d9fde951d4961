"""Small stores of each format that `rankzero import` reads, with `POINTS` points each."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests.cli.importers.logged_runs import WALL, history, neptune_points, write_neptune, write_wandb

POINTS = 40
META = """experiment_id: '1'
lifecycle_stage: active
run_name: wide net
run_id: abc
start_time: 1700000000000
end_time: 1700000100000
status: 3
"""
MLFLOW = """
CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE runs (run_uuid TEXT PRIMARY KEY, name TEXT, experiment_id INTEGER, status TEXT, start_time BIGINT,
    end_time BIGINT, lifecycle_stage TEXT);
CREATE TABLE metrics (key TEXT, value FLOAT, timestamp BIGINT, run_uuid TEXT, step BIGINT, is_nan BOOLEAN);
CREATE TABLE params (key TEXT, value TEXT, run_uuid TEXT);
CREATE TABLE tags (key TEXT, value TEXT, run_uuid TEXT);
INSERT INTO experiments VALUES (1, 'vision');
INSERT INTO runs VALUES ('run1', 'wide net', 1, 'FINISHED', 1700000000000, 1700000100000, 'active');
INSERT INTO params VALUES ('lr', '0.1', 'run1');
"""
TRACKIO = """
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp TEXT NOT NULL, run_id TEXT NOT NULL,
    run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL);
CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT, config TEXT);
INSERT INTO configs (run_id, run_name, config) VALUES ('aaaa', 'wide net', '{"lr": 0.1}');
"""
TRACKIO_ROW = "INSERT INTO metrics (timestamp, run_id, run_name, step, metrics) VALUES (?, 'aaaa', 'wide net', ?, ?)"


def tensorboard(folder: Path) -> Path:
    """Write one event file."""
    writer = EventFileWriter(str(folder))
    for step in range(POINTS):
        summary = Summary(value=[Summary.Value(tag="loss", simple_value=step)])
        writer.add_event(Event(step=step, wall_time=WALL + step, summary=summary))
    writer.close()
    return next(folder.iterdir())


def wandb(folder: Path) -> Path:
    """Write one `.wandb` file with its end."""
    from wandb.proto.wandb_internal_pb2 import Record

    start, end = Record(), Record()
    start.run.run_id, start.run.project, start.run.start_time.seconds = "abc", "vision", WALL
    end.exit.exit_code = 0
    file = folder / "offline-run-1-abc" / "run-abc.wandb"
    write_wandb(file, [start, *(history(step, loss=step) for step in range(POINTS)), end])
    return file


def mlflow(folder: Path) -> Path:
    """Write a run of a file store; returns its `meta.yaml`."""
    run = folder / "1" / "abc"
    for part in ("metrics", "params", "tags"):
        (run / part).mkdir(parents=True)
    (run / "meta.yaml").write_text(META)
    (run / "params" / "lr").write_text("0.1")
    lines = (f"{WALL * 1000 + step} {step} {step}\n" for step in range(POINTS))
    (run / "metrics" / "loss").write_text("".join(lines))
    return run / "meta.yaml"


def mlflow_metric(folder: Path) -> Path:
    """Write the same run; returns the file of its metric."""
    return mlflow(folder).parent / "metrics" / "loss"


def mlflow_database(folder: Path) -> Path:
    """Write a run into a SQLite file."""
    folder.mkdir(parents=True)
    rows = [("loss", step, WALL * 1000 + step, "run1", step, False) for step in range(POINTS)]
    with closing(sqlite3.connect(folder / "mlflow.db")) as connection:
        connection.executescript(MLFLOW)
        connection.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
    return folder / "mlflow.db"


def trackio(folder: Path) -> Path:
    """Write a run of a project."""
    folder.mkdir(parents=True)
    rows = [
        (f"2026-01-01T00:{step:02d}:00+00:00", step, json.dumps({"loss": step, "text": "x"})) for step in range(POINTS)
    ]
    with closing(sqlite3.connect(folder / "vision.db")) as connection:
        connection.executescript(TRACKIO)
        connection.executemany(TRACKIO_ROW, rows)
        connection.commit()
    return folder / "vision.db"


def neptune(folder: Path) -> Path:
    """Write an export of one run."""
    folder.mkdir(parents=True)
    name = {"attribute_path": "sys/name", "attribute_type": "string", "string_value": "wide net"}
    write_neptune(folder, 0, [name, *neptune_points("loss", range(POINTS))])
    return folder / "VIS-1_part_0.parquet"


STORES: Mapping[str, Callable[[Path], Path]] = {
    "tensorboard": tensorboard,
    "wandb": wandb,
    "mlflow": mlflow,
    "mlflow metric": mlflow_metric,
    "mlflow database": mlflow_database,
    "trackio": trackio,
    "neptune": neptune,
}
"""Format -> a function that writes a store into a folder and returns the file to damage."""
