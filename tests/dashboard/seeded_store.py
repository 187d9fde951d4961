"""A store with a run in every state, two nodes and some checkpoints; run it to look at the pages:
python tests/dashboard/seeded_store.py DATA, then `rankzero dashboard --data DATA`."""

from __future__ import annotations

import hashlib
import math
import random
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sqlalchemy import update

from dashboard.storage.files import Files
from db.attempts import attempt_queries
from db.checkpoints import checkpoint_reports
from db.engine import Store
from db.findings import findings
from db.models import Node
from db.nodes import node_queries, node_reports
from db.runs import run_requests
from db.scheduling import queue_placement
from db.tasks import task_reports
from domain.checkpoint_use.tasks import DONE_HERE, TaskKind
from domain.messages import (
    CheckpointOffer,
    Device,
    Finding,
    NodeFacts,
    NodeLoad,
    Point,
    PointBatch,
    RankError,
    Reason,
    TaskReport,
)
from domain.spec import RunSpec
from tests.db import task_streams
from tests.db.cluster import send_heartbeat

GIB = 2**30
TRACEBACK = """Traceback (most recent call last):
  File "/home/ada/train.py", line 212, in <module>
    main()
  File "/home/ada/train.py", line 188, in main
    loss = criterion(model(images), labels)
  File "/home/ada/losses.py", line 31, in forward
    raise ValueError("labels must lie in [0, 10), got 10")
ValueError: labels must lie in [0, 10), got 10
"""
HOSTILE_NAME = "[x](javascript:alert(1)) $$x^2$$ :material/home: :red[no] <b>b</b>"

INTERPRETER = {
    "path": "/opt/env/bin/python", "python": "3.11.9", "torch": "2.13.0+cu126", "cuda": "12.6", "nccl": "2.27.5"
}  # fmt: skip


@dataclass
class Seed:
    """Fills a store as two workers would."""

    store: Store
    now: float
    node_ids: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)

    def node(self, name: str, slots: int, kind: str = "cuda") -> None:
        """A node that is alive, under some load."""
        devices = [
            Device(id=f"GPU-{name}-{i}" if kind == "cuda" else f"cpu:{i}", kind=kind,
                   name="NVIDIA H200" if kind == "cuda" else "CPU slot",
                   memory_bytes=141 * GIB if kind == "cuda" else None)
            for i in range(slots)
        ]  # fmt: skip
        known = NodeFacts(
            name=name, instance_id=name, hostname=name, address="10.0.0.7", devices=devices,
            labels={"rack": "b2"} if kind == "cuda" else {},
            info={"cores": 64, "platform": "Linux", "interpreter": INTERPRETER, DONE_HERE: [*TaskKind]},
        )  # fmt: skip
        self.node_ids[name] = node_reports.register_node(self.store, known, None, self.now).node_id
        gpus = [
            {"id": device.id, "utilisation_percent": 96.0 - i, "memory_used_bytes": 71 * GIB,
             "memory_total_bytes": 141 * GIB, "temperature_c": 61 + i, "power_w": 540.5, "foreign": i == 7}
            for i, device in enumerate(devices)
        ]  # fmt: skip
        load = NodeLoad(
            cpu_percent=37.4, memory_used_bytes=51 * GIB, memory_total_bytes=128 * GIB,
            disk_free_bytes=420 * GIB, disk_total_bytes=1800 * GIB, gpus=gpus if kind == "cuda" else [],
            warm_start="torch is imported ahead (312 MiB)",
        )  # fmt: skip
        send_heartbeat(self.store, self.node_ids[name], self.now, load)

    def launch(self, label: str, age_s: float, **asked: object) -> str:
        """Submit and place a run that many seconds ago."""
        spec = RunSpec.model_validate({"target": "language_model", "name": label, **asked})
        with getattr(self.store.database, "turn_lock", nullcontext()):  # else a dashboard that runs may place it first
            self.runs[label] = run_requests.submit(self.store, spec, self.now - age_s)
            self._hear_those_silent()
            queue_placement.place_queue(self.store, self.now, silent_after_s=60)
        return self.runs[label]

    def report(self, label: str, state: str, age_s: float, **more: object) -> None:
        """What the nodes of the run's latest attempt say."""
        attempt = attempt_queries.attempts(self.store, self.runs[label])[-1]
        names = {queried.id: queried.name for queried in node_queries.nodes(self.store, self.now)}
        for task in attempt.tasks:
            node_id = next(i for i, name in names.items() if name == task.node)
            task_report = TaskReport.model_validate({"state": state, **more})
            task_reports.task_reported(
                self.store, node_id, attempt.fence, task.node_rank, task_report, self.now - age_s
            )

    def start(self, label: str, age_s: float) -> None:
        """All its ranks exist."""
        argv = ["torchrun", "--standalone", "--nproc-per-node=2", "worker/recipes/language_model.py"]
        self.report(
            label, "running", age_s, argv=argv, pid=4211, cwd="/data/node/work",
            env={"RANKZERO_LR": "0.001"}, interpreter=INTERPRETER,
        )  # fmt: skip

    def train(self, label: str, steps: int, age_s: float, last_loss: float | None = None) -> None:
        """A loss that falls, with noise, and a throughput."""
        luck = random.Random(label)
        seconds = age_s / max(1, steps)
        wall = [self.now - age_s + seconds * step for step in range(steps + 1)]
        loss: list[Point] = [
            (step, 0.4 + 3 * math.exp(-4 * step / steps) + luck.gauss(0, 0.05), wall[step])
            for step in range(1, steps + 1)
        ]
        if last_loss is not None:
            loss[-1] = (steps, last_loss, wall[-1])
        speed: list[Point] = [(step, 12_400 + luck.gauss(0, 300), wall[step]) for step in range(1, steps + 1)]
        series = {
            "train/loss": loss,
            "train/samples_per_s": speed,
            "train/lr": [(step, 1e-3 * (1 - step / steps), wall[step]) for step in range(1, steps + 1)],
            "val/loss": [(p[0], p[1] + 0.1, p[2]) for p in loss[:: max(1, steps // 20)]],
            "train/total_steps": [(1, 600.0, wall[1])],
        }
        self.points(label, series)

    def points(
        self,
        label: str,
        series: dict[str, list[Point]],
        source: Literal["events", "hardware", "printed"] = "events",
    ) -> None:
        """Points of a source that has sent nothing before."""
        attempt = attempt_queries.attempts(self.store, self.runs[label])[-1]
        size = 100 * max(len(points) for points in series.values())
        batch = PointBatch(path=source, generation=0, start=0, end=size, series=series, source=source)
        task_streams.points_arrived(self.store, self._node_of(label), attempt.fence, 0, batch)

    def file(self, files: Files, label: str, path: str, content: bytes) -> None:
        """More bytes of a file of rank 0's node, as the run's worker sends them."""
        fence = attempt_queries.attempts(self.store, self.runs[label])[-1].fence
        node_id = self._node_of(label)
        file_id, size = task_streams.file_for_append(self.store, node_id, fence, 0, path, 0)
        files.append(file_id, size, content)
        task_reports.file_grew(self.store, file_id, size, size + len(content))

    def spend(self, label: str, steps: int, **seconds: float) -> None:
        """Rank 0 spends these seconds of each step in these phases."""
        attempt = attempt_queries.attempts(self.store, self.runs[label])[-1]
        series: dict[str, list[Point]] = {
            f"rank0/phases/{name}": [(steps, own_s * (steps - 1), self.now)] for name, own_s in seconds.items()
        }
        batch = PointBatch(path="probe/1.jsonl", generation=0, start=0, end=10, source="probe", series=series)
        task_streams.points_arrived(self.store, self._node_of(label), attempt.fence, 0, batch)

    def checkpoint(self, label: str, step: int, files: Path | None, received: float = 1.0) -> int:
        """A checkpoint, whole or on its way; its bytes too where the server's files are."""
        attempt = attempt_queries.attempts(self.store, self.runs[label])[-1]
        content = f"{label} {step}".encode() * 40_000
        offer = CheckpointOffer(
            path=f"checkpoints/step_{step:06}.pt", step=step, size_bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(), written_at=self.now - 60 + step / 100,
        )  # fmt: skip
        node_id = self._node_of(label)
        row = checkpoint_reports.offered(self.store, node_id, attempt.fence, 0, offer, self.now)
        checkpoint_reports.received(self.store, row.id, int(len(content) * received))
        if received == 1.0:
            checkpoint_reports.completed(self.store, row.id, self.now)
            if files is not None:
                (files / "checkpoints").mkdir(parents=True, exist_ok=True)
                (files / "checkpoints" / str(row.id)).write_bytes(content)
        return row.id

    def find(self, label: str, finding: Finding) -> None:
        """A finding of the run's latest attempt."""
        fence = attempt_queries.attempts(self.store, self.runs[label])[-1].fence
        findings.findings_reported(self.store, self._node_of(label), fence, 0, [finding], self.now)

    def silence(self, name: str, seconds: float) -> None:
        """The node was last heard of so long ago."""
        with self.store.write() as session:
            session.get_one(Node, self.node_ids[name]).last_seen = self.now - seconds

    def hear_all(self, now: float) -> None:
        """Every node speaks now: to fill a store takes a busy machine longer than a node may be silent."""
        with self.store.write() as session:
            session.execute(update(Node).values(last_seen=now))

    def _hear_those_silent(self) -> None:
        """Every node of ours that was last heard of earlier speaks now; the others stay as lately heard of."""
        earlier = Node.id.in_(self.node_ids.values()) & (Node.last_seen < self.now)
        with self.store.write() as session:
            session.execute(update(Node).where(earlier).values(last_seen=self.now))

    def _node_of(self, label: str) -> str:
        attempt = attempt_queries.attempts(self.store, self.runs[label])[-1]
        name = attempt.tasks[0].node
        return next(i for n, i in self.node_ids.items() if n == name)


def seed(store: Store, now: float, files: Path | None = None) -> Seed:
    """A run in every state."""
    made = Seed(store, now)
    made.node("gpu-1", 8)
    made.node("cpu-1", 2, kind="cpu")
    _ended(made, files)
    _live(made, files)
    made.silence("cpu-1", 45)
    return made


def _ended(made: Seed, files: Path | None) -> None:
    made.launch("digits baseline", 90_000, target="image_classifier", gpus_per_node=2, batch_size=32, lr=0.003)
    made.start("digits baseline", 89_990)
    made.train("digits baseline", 600, 89_900)
    made.checkpoint("digits baseline", 600, files)
    made.report("digits baseline", "succeeded", 88_000, exit_code=0)
    made.launch("bad labels", 8_000, target="image_classifier", gpus_per_node=2, project="vision")
    made.start("bad labels", 7_990)
    made.train("bad labels", 40, 7_900)
    error = RankError(
        rank=1, node_rank=0, exit_code=1, exception=TRACEBACK.splitlines()[-1],
        file="/home/ada/losses.py", line=31, traceback=TRACEBACK,
    )  # fmt: skip
    made.report(
        "bad labels", "failed", 7_600, exit_code=1, reason=Reason.SCRIPT_ERROR, error=error,
        message="Rank 1 raised ValueError: labels must lie in [0, 10), got 10 (losses.py, line 31).",
    )  # fmt: skip
    made.launch(HOSTILE_NAME, 5_000, gpus_per_node=1, project="vision")
    made.start(HOSTILE_NAME, 4_990)
    made.train(HOSTILE_NAME, 100, 4_900)
    made.checkpoint(HOSTILE_NAME, 80, files)
    run_requests.request_stop(made.store, made.runs[HOSTILE_NAME], made.now - 4_500)
    made.report(HOSTILE_NAME, "stopped", 4_480)


def _live(made: Seed, files: Path | None) -> None:
    made.launch("gpt wide, long warm-up", 1_300, gpus_per_node=2, lr=1e-4, lr_scaling="linear", batch_size=8)
    made.start("gpt wide, long warm-up", 1_280)
    made.train("gpt wide, long warm-up", 420, 1_260)
    for step in (100, 200, 300, 400):
        made.checkpoint("gpt wide, long warm-up", step, files)
    made.checkpoint("gpt wide, long warm-up", 420, files, received=0.4)
    made.launch("nan at once", 600, gpus_per_node=2)
    made.start("nan at once", 590)
    made.train("nan at once", 50, 580, last_loss=math.nan)
    made.launch("being stopped", 400, gpus_per_node=2)
    made.start("being stopped", 390)
    made.train("being stopped", 60, 380)
    run_requests.request_stop(made.store, made.runs["being stopped"], made.now - 5)
    made.report("being stopped", "stopping", 4)
    made.launch("just launched", 20, gpus_per_node=1)
    made.report("just launched", "starting", 10)
    made.launch("waits for room", 10, gpus_per_node=4)


if __name__ == "__main__":
    data = Path(sys.argv[1])
    data.mkdir(parents=True, exist_ok=True)
    opened = Store.open(data / "rankzero.db", data / "backups")
    seed(opened, time.time(), data / "files")
    opened.close()
