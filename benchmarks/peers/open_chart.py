"""Reads one long series for a chart, as the named peer's page does.

    python open_chart.py mlflow|tensorboard|trackio FOLDER

A round of at least 1,000 fills the series with that many points; 0 reads all of it, thinned for the screen; 1 reads the
tenth in the middle. What the page gets over HTTP is read without HTTP where the peer has a function for it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from rounds import serve

MOST_POINTS = 2000
TAG = "train/loss"


class Mlflow:
    def __init__(self, folder: Path) -> None:
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        self._path = folder / "mlflow.db"
        self._store = SqlAlchemyStore(f"sqlite:///{self._path}", str(folder))

    def fill(self, points: int) -> None:
        import sqlite3

        self._last = points - 1
        self._run = self._store.create_run("0", "user", 0, [], "long").info.run_id
        rows = ((TAG, 1 / (step + 1), 1_700_000_000_000 + step, self._run, step) for step in range(points))
        with sqlite3.connect(self._path) as connection:
            insert = "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, 0)"
            connection.executemany(insert, rows)

    def read(self, first: float, last: float) -> None:
        steps = int(first * self._last), int(last * self._last)
        read = self._store.get_metric_history_bulk_interval([self._run], TAG, MOST_POINTS, *steps)
        assert json.dumps([dict(point) for point in read])


class Trackio:
    def __init__(self, folder: Path) -> None:
        os.environ["TRACKIO_DIR"] = str(folder)

    def fill(self, points: int) -> None:
        from trackio.sqlite_storage import SQLiteStorage

        self._store, self._last = SQLiteStorage, points - 1
        for begin in range(0, points, 100_000):
            steps = [*range(begin, min(begin + 100_000, points))]
            self._store.bulk_log("benchmark", f"long {points}", [{TAG: 1 / (s + 1)} for s in steps], steps)
        self._run = f"long {points}"

    def read(self, first: float, last: float) -> None:
        window = {"around_step": self._last // 2, "window": self._last * (last - first) / 2} if last - first < 1 else {}
        read = self._store.get_metric_values("benchmark", self._run, TAG, max_points=MOST_POINTS, **window)
        assert json.dumps(read)


class TensorBoard:
    """It keeps at most 1,000 points of a series, so that there is nothing to zoom into."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    def fill(self, points: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        with (self._folder / "events.out.tfevents.1700000000.node.1.0").open("wb") as file:
            writer = RecordWriter(file)
            for step in range(points):
                summary = Summary(value=[Summary.Value(tag=TAG, simple_value=1 / (step + 1))])
                writer.write(Event(wall_time=1.7e9 + step, step=step, summary=summary).SerializeToString())
        command = [
            sys.executable,
            "-m",
            "tensorboard.main",
            "--logdir",
            str(self._folder),
            "--port",
            str(self._port),
        ]
        self._server = subprocess.Popen(command)
        while self._last_step() != points - 1:
            time.sleep(0.5)

    def read(self, first: float, last: float) -> None:
        assert self._get()

    def _last_step(self) -> int:
        try:
            return int(json.loads(self._get())[-1][1])
        except (OSError, ValueError):  # does not serve yet, or has not read anything
            return -1

    def _get(self) -> bytes:
        address = f"http://127.0.0.1:{self._port}/data/plugin/scalars/scalars?run=.&tag={TAG}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            return answer.read()

    def end(self) -> None:
        self._server.terminate()
        self._server.wait()


if __name__ == "__main__":
    name, folder = sys.argv[1:]
    chart = {"mlflow": Mlflow, "tensorboard": TensorBoard, "trackio": Trackio}[name](Path(folder))

    def measured(size: int) -> float:
        began = time.perf_counter()
        if size >= 1000:
            chart.fill(size)
        else:
            chart.read(*((0.45, 0.55) if size else (0.0, 1.0)))
        return time.perf_counter() - began

    try:
        serve(measured)
    finally:
        if name == "tensorboard":
            chart.end()
