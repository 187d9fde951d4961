"""A daemon on a private directory with a fake server, and the scripts that it starts."""

from __future__ import annotations

import json
import shutil
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

from domain.assignments import Assignment
from domain.spec import RunSpec
from tests.worker.fake_server import FakeServer
from worker.launch.preparation import LocalNode
from worker.launch.warm import Supervisors
from worker.node import processes
from worker.session.answers import Adoption, DesiredState
from worker.session.failures import ServerAway
from worker.trainings.daemon import Daemon

RUN = uuid.uuid4().hex[:10]
"""Its own in each test process: what ends a run's processes finds them by this name on the whole machine."""
WAITING = """
import pathlib, time
pathlib.Path("ready").touch()
while pathlib.Path("ready").exists(): time.sleep(0.02)
"""


class NodeUnderTest:
    """A daemon on a private directory; restart it, and only what is on disk and in processes stays."""

    def __init__(self, folder: Path) -> None:
        self.server = FakeServer()
        self.folder = folder
        self.node = LocalNode(name="n0", data_dir=folder / "data", python=sys.executable)
        self.supervisors = []
        self.adoption: Adoption | None = None
        self.start_worker()

    def start_worker(self) -> None:
        self.daemon = Daemon(self.server, self.node, self.spawn, lambda work: work())
        self.daemon.recover_attempts()

    def spawn(self, *what):
        self.supervisors.append(Supervisors(self.node.data_dir, is_warm=False).spawn(*what))
        return self.supervisors[-1]

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def assignment(self, target: str, *, fence=1, action="run", node_rank=0, attempt=1, **more) -> Assignment:
        spec = {"target": target, "launcher": "python", "stop_grace_s": 600} | more.pop("spec", {})
        return Assignment(
            run_id=RUN, attempt=attempt, fence=fence, node_rank=node_rank, action=action,
            spec=RunSpec(**spec), devices=["cpu:0"], device_kind="cpu", **more,
        )  # fmt: skip

    def assign(self, *assignments: Assignment) -> None:
        self.daemon.set_desired_state(DesiredState(version="1", assignments=list(assignments)))

    def turn(self) -> None:
        now = time.monotonic()
        self.daemon.step(now)
        self.daemon.take_checkpoints(now)
        with suppress(ServerAway):  # the thread that does this waits, and tries again
            self.daemon.send_checkpoints(self.adoption, lambda: True)

    def until(self, condition, limit_s=300.0):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self.turn()
            if result := condition():
                return result
            time.sleep(0.01)
        raise AssertionError(f"not within {limit_s} s; reported: {self.server.states()}")

    def until_settled(self):
        self.until(lambda: not self.daemon.attempts)
        return self.server.end()

    def dir(self, attempt=1, node_rank=0) -> Path:
        return self.node.data_dir / f"runs/{RUN}/attempts/{attempt}/node{node_rank}"

    def supervisor(self, attempt=1):
        try:
            return json.loads((self.dir(attempt) / "supervisor.json").read_text())
        except OSError:
            return None

    def until_ready(self, attempt=1):
        self.until(lambda: (self.dir(attempt) / "work/ready").exists())
        self.until(lambda: "running" in self.server.states())

    def let_end(self, attempt=1):
        (self.dir(attempt) / "work/ready").unlink()

    def clean_up(self):
        for supervisor in self.supervisors:
            supervisor.kill()
            supervisor.wait()
        for attempt in (1, 2):
            processes.kill_all(lambda number=attempt: processes.of_attempt(RUN, number, 0), 60)


def delete(folder: Path) -> None:
    """Delete a folder into which others write meanwhile."""
    while folder.exists():
        with suppress(OSError):
            shutil.rmtree(folder)


def events(steps=range(5), pause_s=0.0):
    """A script that writes event files as torch's SummaryWriter does, without importing torch."""
    return f"""
import time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("runs/a")
for step in {list(steps)!r}:
    value = Summary.Value(tag="train/loss", simple_value=step * 0.5)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    writer.flush()
    time.sleep({pause_s})
writer.close()
"""


def checkpoint(name, size=10):
    """A script that saves what has the form of a torch checkpoint."""
    return f"""
import os, zipfile
with zipfile.ZipFile("{name}", "w") as archive:
    archive.writestr("data", os.urandom({size}))
"""
