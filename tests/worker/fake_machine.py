"""A machine without a kernel: its processes are functions of a test, and live on virtual time.

A program is a function of its `FakeProcess`: it prints, writes files, sleeps, and returns its exit code. What only a
kernel can show (sessions, reparenting, /proc, memory) is not here."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from domain.clock import Clock
from tests.virtual_time import VirtualTime
from worker.attempt.kernel import Kernel, Launcher
from worker.attempt.supervisor import AttemptDirectory, Supervisor
from worker.node import processes
from worker.node.attempt_files import STATE_FILE, SUPERVISOR_MODULE
from worker.node.processes import Process

Program = Callable[["FakeProcess"], int | None]
FIRST_PID = 1 << 30
"""No kernel gives out such numbers: a real one has none of these processes."""


class Ended(BaseException):
    """Ends the program of a process that was killed."""


class FakeProcess:
    """A process, with what its program may do."""

    def __init__(
        self, machine: FakeMachine, pid: int, parent: int, env: Mapping[str, str], argv: Iterable[str] = ()
    ) -> None:
        self._machine, self._time = machine, machine.time
        self.pid, self.parent, self.env, self.argv = pid, parent, dict(env), [*argv]
        self.returncode: int | None = None
        self.pending: list[int] = []
        """Signals that have arrived and are not handled."""
        self.arrived = threading.Event()
        self.blocks_signals = False
        self.logs: dict[str, Path] = {}
        self.folder = Path()
        """Its working directory."""
        self._handlers: dict[int, Callable[[], object]] = {}

    @property
    def identity(self) -> Process:
        return Process(self.pid, 1)

    # -- for programs --------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Sleep, and handle the signals that arrive meanwhile. Raises Ended once it is killed."""
        until = self._time.now() + seconds
        while self._time.wait(until, self.arrived):
            self.arrived.clear()
            if self.returncode is not None:
                raise Ended
            while self.pending:
                self._handlers[self.pending.pop(0)]()

    def handle(self, number: int, handler: Callable[[], object] = lambda: None) -> None:
        """Do this when the signal arrives, instead of ending by it."""
        self._handlers[number] = handler

    def print(self, text: str, stream: str = "out") -> None:
        self.write(self.logs[stream], text.encode() + b"\n")

    def write(self, path: Path | str, content: bytes = b"") -> None:
        """Append to a file of its working directory, at this moment of virtual time."""
        with (self.folder / path).open("ab") as file:
            file.write(content)
        os.utime(self.folder / path, (self._time.wall(), self._time.wall()))

    def note_step(self, step: int, doing: str = "computing", **more: Any) -> None:
        """Write what the probe notes of a step that was just made."""
        folder, wall = Path(self.env["RANKZERO_PROBE_DIR"]), self._time.wall()
        line = {"t": wall, "pid": self.pid, "rank": int(self.env.get("RANK", 0)), "world_size": 1, "in": doing}
        folder.mkdir(exist_ok=True)
        self.write(
            folder / f"{self.pid}.jsonl",
            json.dumps(line | {"step": step, "last_step_at": wall, "step_time_s": 0.5} | more).encode() + b"\n",
        )

    def wait_for(self, condition: Callable[[], object], every_s: float = 0.1) -> None:
        while not condition():
            self.sleep(every_s)

    def wall(self) -> float:
        return self._time.wall()

    # -- for its parent ------------------------------------------------------------------------

    def poll(self) -> int | None:
        return self.returncode

    def terminate(self) -> None:
        self.receive(signal.SIGTERM)

    def kill(self) -> None:
        self.receive(signal.SIGKILL)

    # -- for the machine -----------------------------------------------------------------------

    def receive(self, number: int) -> None:
        if self.returncode is not None:
            return
        if number == signal.SIGKILL or not (self.blocks_signals or number in self._handlers):
            self.end(-number)
        else:
            self.pending.append(number)
        self.arrived.set()

    def end(self, code: int) -> None:
        """End: the parent gets SIGCHLD, children get its parent, and those of a supervisor SIGTERM."""
        self.returncode = code
        if (parent := self._machine.living.get(self.parent)) is not None and parent.blocks_signals:
            parent.receive(signal.SIGCHLD)
        del self._machine.living[self.pid]
        for child in [process for process in self._machine.living.values() if process.parent == self.pid]:
            child.parent = self.parent
            if self.blocks_signals:
                child.receive(signal.SIGTERM)


class FakeMachine:
    """Processes by their number; the `ProcessTable` of a node under test."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.boot = "the first"
        self.living: dict[int, FakeProcess] = {}
        self.programs: dict[str, Program] = {}
        """Path of a script -> the program of command lines that name it."""
        self.supervisors: list[FakeProcess] = []
        self.supervisors_hang = False
        """Whether supervisors do nothing."""
        self.newest = FIRST_PID

    def start(
        self, program: Program, parent: int = 0, env: Mapping[str, str] | None = None, argv: Iterable[str] = ()
    ) -> FakeProcess:
        """Start a process."""
        self.newest += 1
        process = self.living[self.newest] = FakeProcess(self, self.newest, parent, env or {}, argv)

        def live() -> None:
            with suppress(Ended):
                code = program(process) if process.returncode is None else 0
                if process.returncode is None:
                    process.end(code or 0)

        self.time.start(f"process {process.pid}", live)
        return process

    def spawn(self, folder: Path, run_id: str, number: int, secrets: Mapping[str, str]) -> FakeProcess:
        """Start the supervisor of an attempt."""

        def supervise(process: FakeProcess) -> None:
            process.blocks_signals = True
            if self.supervisors_hang:
                process.sleep(24 * 3600.0)
            directory = AttemptDirectory(folder)
            try:
                if not (folder / STATE_FILE).exists():
                    Supervisor(directory, run_id, number, FakeKernel(self, process), self, self.time).run()
            finally:
                directory.close()

        (folder / "logs").mkdir(exist_ok=True)
        argv = ["-m", SUPERVISOR_MODULE, "--data", "unused", "--attempt", f"{run_id}/{number}", str(folder)]
        self.supervisors.append(self.start(supervise, env=secrets, argv=argv))
        return self.supervisors[-1]

    def restart(self) -> None:
        """Restart: nothing of what ran is left."""
        self.boot += ", and another"
        for process in [*self.living.values()]:
            process.blocks_signals = False
            process.kill()

    # -- ProcessTable --------------------------------------------------------------------------

    def boot_id(self) -> str:
        return self.boot

    def find(self, pid: int) -> Process | None:
        return self.living[pid].identity if pid in self.living else None

    def is_alive(self, process: Process) -> bool:
        return self.find(process.pid) == process

    def is_locked(self, path: Path) -> bool:
        return processes.is_locked(path)

    def children(self, pid: int) -> list[int]:
        return [process.pid for process in self.living.values() if process.parent == pid]

    def descendants(self, pid: int) -> list[Process]:
        children = [Process(child, 1) for child in self.children(pid)]
        return [*children, *(process for child in children for process in self.descendants(child.pid))]

    def kin(self, recorded: Iterable[Process]) -> list[Process]:
        living = [process for process in recorded if self.is_alive(process)]
        return sorted({*living, *(child for process in living for child in self.descendants(process.pid))})

    def environment(self, pid: int) -> dict[str, str]:
        return self.living[pid].env if pid in self.living else {}

    def of_attempt(self, run_id: str, attempt: int, node_rank: int) -> list[Process]:
        names = (processes.RUN_VARIABLE, processes.ATTEMPT_VARIABLE, processes.NODE_RANK_VARIABLE)
        own = dict(zip(names, (run_id, str(attempt), str(node_rank)), strict=True))
        return [process.identity for process in self.living.values() if own.items() <= process.env.items()]

    def with_arguments(self, matches: Callable[[list[str]], bool]) -> list[Process]:
        return [process.identity for process in self.living.values() if matches(process.argv)]

    def send_signal(self, process: Process, number: int) -> bool:
        if not self.is_alive(process):
            return False
        self.living[process.pid].receive(number)
        return True

    def kill_all(self, find_all: Callable[[], list[Process]], timeout_s: float, clock: Clock) -> list[int]:
        killed = set()
        while remaining := find_all():
            killed |= {process.pid for process in remaining if self.send_signal(process, signal.SIGKILL)}
        return sorted(killed)


class FakeKernel(Kernel):
    """The kernel of a fake machine, for one supervisor."""

    def __init__(self, machine: FakeMachine, process: FakeProcess) -> None:
        self._machine, self._process, self.pid = machine, process, process.pid

    def start(self, launch: Mapping[str, Any], env: Mapping[str, str], out: BinaryIO, err: BinaryIO) -> Launcher:
        (program,) = [self._machine.programs[word] for word in launch["argv"] if word in self._machine.programs]
        launcher = self._machine.start(program, self.pid, env, launch["argv"])
        launcher.logs = {"out": Path(out.name), "err": Path(err.name)}
        launcher.folder = Path(launch["cwd"])
        return launcher

    def wait(self, seconds: float) -> int | None:
        process = self._process
        self._machine.time.pause(seconds, process.arrived)
        process.arrived.clear()
        if process.returncode is not None:
            raise Ended
        return process.pending.pop(0) if process.pending else None

    def reap(self, keep: int | None) -> None:
        """There are no zombies."""

    def has_children(self) -> bool:
        return bool(self._machine.children(self.pid))
