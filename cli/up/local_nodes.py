"""The nodes of `rankzero up`: a worker each, with the processes of its runs; several make a cluster to try it with."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from cli.up.children import ProgramCommand, SupervisedProgram
from worker.node import processes
from worker.node.attempt_files import SUPERVISOR_MODULE
from worker.node.processes import Process


class ClusterNode:
    """One worker on this machine, which is ended with all of its runs."""

    def __init__(self, name: str, data: Path, command: ProgramCommand) -> None:
        self.name, self._command = name, command
        self.worker = SupervisedProgram(command)
        self.processes = RunProcesses(data)

    @classmethod
    def beside_others(cls, program: ProgramCommand, name: str, data: Path, env: Mapping[str, str]) -> ClusterNode:
        """Return one of several nodes of a data directory, with a part of that for its own."""
        folder = data / "nodes" / name
        argv = [str(folder) if argument == str(data) else argument for argument in program.argv]
        log = program.log.with_name(f"{name}.log")
        return cls(name, folder, replace(program, name=name, argv=argv, log=log, env={**program.env, **env}))

    def is_busy(self) -> bool:
        """Whether its worker or a run of it has not ended yet."""
        return self.worker.is_running or bool(self.processes.supervisors())

    def fail(self) -> None:
        """Let it end at once with all its processes, as a machine does that loses its power."""
        self.worker.send(signal.SIGKILL)
        self.processes.kill()

    def come_back(self) -> None:
        """Start its worker again, as a machine does that has been repaired."""
        if not self.worker.is_running:
            self.worker = SupervisedProgram(self._command)


TERMINAL = 0


def readable() -> bool:
    """Whether something was typed; what runs in the background must not ask for it."""
    return bool(select.select([TERMINAL], [], [], 0)[0])


def shares_of_gpus(count: int) -> list[Mapping[str, str]]:
    """Return for each of several nodes the environment in which it sees its share of this machine's GPUs."""
    from worker.node.hardware import devices

    gpus = [device.id for device in devices(None) if device.kind == "cuda"]
    return [{"CUDA_VISIBLE_DEVICES": ",".join(gpus[number::count])} if gpus else {} for number in range(count)]


class Orders:
    """What is typed while `rankzero up` runs several nodes: `kill node-2`, `start node-2`."""

    def __init__(self, nodes: Sequence[ClusterNode], print_line: Callable[[str], None]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._print = print_line
        self._is_open = len(nodes) > 1 and os.isatty(TERMINAL)
        if self._is_open:
            second = nodes[1].name  # a demo is on the first two
            print_line(f"Type `kill {second}` to let that node fail, `start {second}` to bring it back.\n")

    def follow(self) -> None:
        """Do what was typed since the last call."""
        with suppress(OSError):  # the terminal may be closed
            while self._is_open and os.tcgetpgrp(TERMINAL) == os.getpgrp() and readable():
                typed = os.read(TERMINAL, 1000).decode(errors="replace")
                self._is_open = bool(typed)
                for line in typed.splitlines():
                    self._do(line.split())

    def _do(self, words: list[str]) -> None:
        node = self._nodes.get(words[1]) if len(words) == 2 else None
        if node is not None and words[0] == "kill":
            node.fail()
            self._print(f"{node.name} is killed, with everything on it.")
        elif node is not None and words[0] == "start":
            node.come_back()
            self._print(f"{node.name} starts again.")
        elif words:
            self._print(f"Not understood: type kill or start and one of {', '.join(self._nodes)}.")


# Find the processes of a data directory's runs on this machine, end them, and prove that none is left.


class RunProcesses:
    """The processes of one data directory's runs on this machine."""

    def __init__(self, data: Path) -> None:
        self._data = data

    def supervisors(self) -> list[Process]:
        """Return the supervisors, one per attempt, whose command line names the data directory."""
        return processes.with_arguments(
            lambda words: SUPERVISOR_MODULE in words and any(map(self._is_ours, pairwise(words)))
        )

    def _is_ours(self, words: tuple[str, str]) -> bool:
        """Whether two words name this data directory, or that of an account in it."""
        option, folder = words[0], Path(words[1])
        return option == "--data" and (folder == self._data or folder.parent == self._data / "accounts")

    def _runs(self) -> list[Path]:
        """Return the folders of runs: the worker's own, and those of accounts."""
        return [self._data / "runs", *self._data.glob("accounts/*/runs")]

    def run_ids(self) -> set[str]:
        """Return the ids of the runs that have a supervisor."""
        ids: set[str] = set()
        for supervisor in self.supervisors():
            with suppress(OSError):
                words = Path(f"/proc/{supervisor.pid}/cmdline").read_text(errors="replace").split("\0")
                ids |= {value.partition("/")[0] for name, value in pairwise(words) if name == "--attempt"}
        return ids

    def all_processes(self) -> list[Process]:
        """Return the supervisors, their descendants, and every process with the id of one of the runs, but those of
        another node on this machine that takes part in the run."""
        supervisors = self.supervisors()
        names = {path.name for runs in self._runs() for path in runs.glob("*")}
        members = [one for one in processes.of_runs(names) if self._is_here(one)]
        for supervisor in supervisors:
            members += processes.descendants(supervisor.pid)
        return list({*supervisors, *members})

    def _is_here(self, process: Process) -> bool:
        names = (processes.RUN_VARIABLE, processes.ATTEMPT_VARIABLE, processes.NODE_RANK_VARIABLE)
        run_id, attempt, rank = map(processes.environment(process.pid).get, names)
        folder = f"{run_id}/attempts/{attempt}/node{rank}"
        return rank is None or any((runs / folder).exists() for runs in self._runs())

    def terminate(self) -> None:
        """Send SIGTERM to every supervisor, which ends its attempt."""
        for supervisor in self.supervisors():
            processes.send_signal(supervisor, signal.SIGTERM)

    def kill(self, timeout_s: float = 5.0) -> None:
        """Send SIGKILL until no process is left or time is up."""
        processes.kill_all(self.all_processes, timeout_s)
