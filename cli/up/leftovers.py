"""Find the processes of a data directory's runs on this machine, end them, and prove that none is left."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

SUPERVISOR = "worker.attempt.supervisor"
RUN_VARIABLE = "RANKZERO_RUN_ID"


class RunProcesses:
    """The processes of one data directory's runs on this machine."""

    def __init__(self, data: Path) -> None:
        self._data = str(data)
        self._runs = data / "runs"

    def supervisors(self) -> list[psutil.Process]:
        """Return the supervisors, one per attempt, whose command line names the data directory."""
        return [process for process in psutil.process_iter() if self._supervises(process)]

    def all_processes(self) -> list[psutil.Process]:
        """Return the supervisors, their descendants, and every process with the id of one of the runs."""
        processes = set(self.supervisors())
        for supervisor in list(processes):
            with suppress(psutil.Error):
                processes |= set(supervisor.children(recursive=True))
        run_ids = {path.name for path in self._runs.glob("*")}
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(RUN_VARIABLE) in run_ids:
                    processes.add(process)
        return [process for process in processes if _lives(process)]

    def terminate(self) -> None:
        """Send SIGTERM to every supervisor, which ends its attempt."""
        for process in self.supervisors():
            with suppress(psutil.Error):
                process.send_signal(signal.SIGTERM)

    def kill(self, timeout_s: float = 5.0) -> None:
        """Send SIGKILL until no process is left or time is up."""
        deadline = time.monotonic() + timeout_s
        while (processes := self.all_processes()) and time.monotonic() < deadline:
            for process in processes:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(processes, timeout=0.2)

    def _supervises(self, process: psutil.Process) -> bool:
        try:
            command = process.cmdline()
        except psutil.Error:
            return False
        if SUPERVISOR not in command or "--data" not in command[:-1]:
            return False
        return command[command.index("--data") + 1] == self._data and _lives(process)


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
