"""Logs scalars as the named logger's users do, and measures until all of them are in its file or store.

python log_points.py mlflow|tensorboard|trackio|wandb FOLDER
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from rounds import serve

TAGS = [f"train/s{number}" for number in range(8)]
MLFLOW_BATCH = 1000
"""Metrics of one request: the most that MLflow takes."""


def steps(points: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Steps with a value of each series."""
    for step in range(points // len(TAGS)):
        yield step, dict.fromkeys(TAGS, 1 / (step + 1))


def tensorboard(folder: Path) -> Callable[[int], None]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    def log(points: int) -> None:
        writer = EventFileWriter(str(folder / uuid.uuid4().hex))
        for step, values in steps(points):
            for tag, value in values.items():
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))
        writer.close()

    return log


def mlflow(folder: Path) -> Callable[[int], None]:
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.create_experiment("benchmark")

    def log(points: int) -> None:
        run, batch = client.create_run(experiment).info.run_id, []
        for step, values in steps(points):
            batch += [Metric(tag, value, int(time.time() * 1000), step) for tag, value in values.items()]
            if len(batch) + len(TAGS) > MLFLOW_BATCH:
                client.log_batch(run, metrics=batch)
                batch = []
        if batch:
            client.log_batch(run, metrics=batch)

    return log


def trackio(folder: Path) -> Callable[[int], None]:
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    def log(points: int) -> None:
        trackio.init(project="benchmark", name=uuid.uuid4().hex)
        for step, values in steps(points):
            trackio.log(values, step=step)
        trackio.finish()

    return log


def wandb(folder: Path) -> Callable[[int], None]:
    import wandb

    def log(points: int) -> None:
        with wandb.init(project="benchmark", dir=str(folder), mode="offline") as run:
            for step, values in steps(points):
                run.log(values, step=step)

    return log


if __name__ == "__main__":
    name, folder = sys.argv[1:]
    log = {"mlflow": mlflow, "tensorboard": tensorboard, "trackio": trackio, "wandb": wandb}[name](Path(folder))

    def measured(points: int) -> float:
        began = time.perf_counter()
        log(points)
        return time.perf_counter() - began

    serve(measured)
