"""A node whose script writes with loggers."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from domain.messages import PointBatch
from tests.cli.importers.logged_runs import WALL, history, write_wandb
from tests.virtual_time import VirtualTime
from tests.worker.sendings import answering, done
from worker.loggers.store_source import SharedNames
from worker.loggers.stores import LoggerStores
from worker.node.attempt_files import EXISTING_FILE
from worker.session.failures import OffsetMismatch
from worker.streams.omissions import Omissions
from worker.streams.point_uploader import PointStream, PointUploader

Curve = list[tuple[int, float]]


class FakeServer:
    """Takes points only from the offset it has."""

    def __init__(self) -> None:
        self.offsets: defaultdict[str, int] = defaultdict(int)
        self.series: defaultdict[str, Curve] = defaultdict(list)
        self.requests = 0
        self.loses_replies = False

    def send(self, batch: PointBatch) -> int:
        self.requests += 1
        if batch.start != self.offsets[batch.path]:
            raise OffsetMismatch(self.offsets[batch.path])
        self.offsets[batch.path] = batch.end
        for tag, points in batch.series.items():
            self.series[tag] += [(step, value) for step, value, _ in points]
        if self.loses_replies and self.requests % 2:
            raise ConnectionError
        return batch.end


class Node:
    """An attempt's directory, in which loggers write, and a stream over it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work, self.server = folder, folder / "work", FakeServer()
        self.has_event_files, self.time = False, VirtualTime()
        (folder / "worker").mkdir()
        (folder / EXISTING_FILE).write_text("{}")
        os.utime(folder / EXISTING_FILE, (WALL, WALL))
        self.mlruns = self.work / "mlruns" / "0" / "abc"
        self.restart_worker()

    def restart_worker(self) -> None:
        self.names = SharedNames(self.folder / "worker/loggers.json", lambda: self.has_event_files, self.time)
        offsets = self.server.offsets
        self.omissions = Omissions(self.folder)
        self.stores = LoggerStores(
            self.folder,
            [self.work],
            lambda path, _: offsets[path],
            self.names,
            omissions=self.omissions,
            clock=self.time,
        )
        uploader = PointUploader(answering(self.server.send), self.omissions)
        self.stream = PointStream(self.stores.sources, uploader)

    def read(self, final: bool = False) -> dict[str, Curve]:
        """Send all there is, whatever gets lost on the way."""
        self.stores.look_again()
        while True:
            try:
                if not done(self.stream.step(final=final)):
                    return dict(self.server.series)
            except ConnectionError:
                continue

    def log(self, name: str, step: int, value: float, wall: float = WALL + 1) -> None:
        """Log to MLflow's file store as MLflow does."""
        metric = self.mlruns / "metrics" / name
        metric.parent.mkdir(parents=True, exist_ok=True)
        (self.mlruns / "meta.yaml").write_text("run_id: abc\nstatus: 1\n")
        with metric.open("a") as file:
            file.write(f"{int(wall * 1000)} {value} {step}\n")

    def log_to_wandb(self, *rows: tuple[int, float]) -> Path:
        """Write a `.wandb` file with these losses."""
        file = self.work / "wandb" / "offline-run-1-abc" / "run-abc.wandb"
        write_wandb(file, [history(step, loss=value) for step, value in rows])
        return file
