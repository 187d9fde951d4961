"""Find the processes of a data directory's runs on this machine, end them, and prove that none is left."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path

from worker.node import processes
from worker.node.attempt_files import SUPERVISOR_MODULE
from worker.node.processes import Process


class RunProcesses:
    """The processes of one data directory's runs on this machine."""

    def __init__(self, data: Path) -> None:
        self._data, self._runs = str(data), data / "runs"

    def supervisors(self) -> list[Process]:
        """Return the supervisors, one per attempt, whose command line names the data directory."""
        return processes.with_arguments(
            lambda words: SUPERVISOR_MODULE in words and ("--data", self._data) in pairwise(words)
        )

    def all_processes(self) -> list[Process]:
        """Return the supervisors, their descendants, and every process with the id of one of the runs."""
        supervisors = self.supervisors()
        members = processes.of_runs(path.name for path in self._runs.glob("*"))
        for supervisor in supervisors:
            members += processes.descendants(supervisor.pid)
        return list({*supervisors, *members})

    def terminate(self) -> None:
        """Send SIGTERM to every supervisor, which ends its attempt."""
        for supervisor in self.supervisors():
            processes.send_signal(supervisor, signal.SIGTERM)

    def kill(self, timeout_s: float = 5.0) -> None:
        """Send SIGKILL until no process is left or time is up."""
        processes.kill_all(self.all_processes, timeout_s)
