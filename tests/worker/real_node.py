"""A daemon with real processes and a fake server, and the scripts that it starts."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from domain.assignments import Assignment
from tests.worker.node_under_test import RUN, NodeUnderTest
from worker.launch.warm import Supervisors
from worker.node import processes
from worker.session.answers import DesiredState
from worker.session.failures import ServerAway
from worker.trainings.daemon import Daemon

WAITING = """
import pathlib, time
pathlib.Path("ready").touch()
while pathlib.Path("ready").exists(): time.sleep(0.02)
"""


class RealNode(NodeUnderTest):
    """A node whose daemon works only in `turn`, and whose processes are the kernel's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.supervisors = []
        self.start_worker()

    def start_worker(self) -> None:
        self.daemon = Daemon(self.server, self.node, self.spawn, lambda work: work())
        self.daemon.recover_attempts()

    def spawn(self, *order):
        self.supervisors.append(Supervisors(self.node.data_dir, is_warm=False).spawn(*order))
        return self.supervisors[-1]

    def script(self, text: str, name: str = "train.py") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def assign(self, *assignments: Assignment) -> None:
        self.daemon.set_desired_state(DesiredState(version="1", assignments=list(assignments)))

    def turn(self) -> None:
        now = time.monotonic()
        self.daemon.step(now)
        self.daemon.take_checkpoints(now)
        with suppress(ServerAway):  # the thread that does this waits, and tries again
            self.daemon.send_checkpoints(None, lambda: True)

    def until(self, condition, limit_s=300.0):
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self.turn()
            if result := condition():
                return result
            time.sleep(0.01)
        raise AssertionError(f"not within {limit_s} s; reported: {self.server.states()}")

    def clean_up(self):
        for supervisor in self.supervisors:
            supervisor.kill()
            supervisor.wait()
        for attempt in (1, 2):
            processes.kill_all(lambda number=attempt: processes.of_attempt(RUN, number, 0), 60)
