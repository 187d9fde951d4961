"""A whole node on virtual time: its loops, its supervisors and its trainings, with a fake server and fake processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZipFile

from domain.assignments import Assignment
from tests.virtual_time import HOUR_S, VirtualTime
from tests.worker.fake_machine import FakeMachine, FakeProcess, Program
from tests.worker.node_under_test import NodeUnderTest
from tests.worker.streams.event_bytes import scalar
from worker.checkpoint_tasks.program import RunProgram, run_program
from worker.launch.warm import Supervisors
from worker.session.answers import DesiredState
from worker.trainings.trainings import Trainings

T = TypeVar("T")


class FakeSupervisors(Supervisors):
    """Starts supervisors on a fake machine; torch is never imported ahead there."""

    def __init__(self, data: Path, machine: FakeMachine) -> None:
        super().__init__(data, is_warm=False, clock=machine.time)
        self._machine = machine

    def spawn(self, *order: Any) -> Any:
        return self._machine.spawn(*order)


class VirtualNode(NodeUnderTest):
    """A node whose time moves only by `until` and `time.advance`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.time = VirtualTime()
        self.machine = FakeMachine(self.time)
        self.server.time = self.time.wall
        self.trainings: Trainings | None = None
        self.run_program: RunProgram = run_program
        self.start_worker()

    def start_worker(self) -> None:
        """Start the first worker, or another one after the end of the one before."""
        if self.trainings is not None:
            self.end_worker()
        self.trainings = Trainings(
            self.server, self.node, is_warm=False, imports_ahead=False, clock=self.time,  # type: ignore[arg-type]
            supervisors=FakeSupervisors(self.node.data_dir, self.machine), table=self.machine,
            run_program=lambda *arguments: self.run_program(*arguments),
        )  # fmt: skip
        self.daemon = self.trainings.daemon
        self.trainings.start()

    def end_worker(self) -> None:
        """End the worker; what trains goes on."""
        self.trainings.close(60.0)
        self.trainings = None

    def script(self, program: Program, name: str = "train.py") -> str:
        """The path of a script that does this."""
        path = self.folder / name
        path.touch()
        self.machine.programs[str(path)] = program
        return str(path)

    def assign(self, *assignments: Assignment) -> None:
        self.trainings.set_desired_state(DesiredState(version="1", assignments=list(assignments)), may_start=True)

    def until(self, condition: Callable[[], T], limit_s: float = HOUR_S) -> T:
        self.time.advance(0.0)  # what was asked for just now has begun
        return self.time.run_until(condition, limit_s, lambda: f"; reported: {self.server.states()}")

    def until_ranks(self) -> None:
        self.until(lambda: self.supervisor().get("running_at"))

    @property
    def ranks(self) -> list[FakeProcess]:
        """The living processes but supervisors."""
        return [process for process in self.machine.living.values() if process not in self.machine.supervisors]


def nothing(process: FakeProcess) -> None:
    """End at once."""


def waiting(process: FakeProcess) -> None:
    """Train until the test lets it end."""
    ready = process.folder / "ready"
    process.write(ready)
    process.wait_for(lambda: not ready.exists())


def events(steps: Iterable[int] = range(5), pause_s: float = 0.0) -> Program:
    """A script that writes event files."""

    def program(process: FakeProcess) -> None:
        (process.folder / "runs/a").mkdir(parents=True, exist_ok=True)
        for step in steps:
            process.write("runs/a/events.out.tfevents.1.host.1.0", scalar(step, step * 0.5, wall=process.wall()))
            process.sleep(pause_s)

    return program


def checkpoint(name: str, size: int = 10) -> Program:
    """A script that saves what has the form of a torch checkpoint."""

    def program(process: FakeProcess) -> None:
        content = BytesIO()
        with ZipFile(content, "w") as archive:
            archive.writestr("data", os.urandom(size))
        process.write(name, content.getvalue())

    return program


def printing(text: str, stream: str = "out") -> Program:
    """A script that prints this."""
    return lambda process: process.print(text, stream)


def failing(error: str) -> Program:
    """A script that ends as Python does for an exception."""

    def program(process: FakeProcess) -> int:
        process.print(f'Traceback (most recent call last):\n  File "{process.argv[-1]}", line 1, in <module>', "err")
        process.print(error, "err")
        return 1

    return program


def stubborn(process: FakeProcess) -> None:
    """Train on in spite of SIGTERM, until the test lets it end."""
    process.handle(signal.SIGTERM)
    waiting(process)


def then(*programs: Program) -> Program:
    """A script that does one after another; its exit code is the last one's."""
    return lambda process: [program(process) for program in programs][-1]
