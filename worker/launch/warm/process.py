"""One process that has torch imported, seen from the worker that started it."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from worker.launch.interpreter import Fingerprint, fingerprint, watched_paths
from worker.launch.warm import conditions
from worker.node import processes
from worker.node.processes import Process
from worker.warm.rankzero_warm import channel

log = logging.getLogger(__name__)
PROGRAM = Path(__file__).parents[2] / "warm" / "start.py"
ANSWER_LIMIT_S = 5.0
IMPORT_LIMIT_S = 30.0
"""For so long a launch waits for the import of torch."""
NOT_YET = "torch is not imported ahead yet"


class ForkedSupervisor:
    """A supervisor that was forked: not this worker's child, but its process all the same."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """None while it runs; its exit code is not known here."""
        return None if processes.is_alive(self._process) else 0


class WarmProcess:
    """Imports torch in this environment and waits for requests; it ends with its worker. Raises Unusable, OSError."""

    def __init__(self, python: str, env: Mapping[str, str], data: Path) -> None:
        self.python, self.env = python, conditions.import_environment(env)
        self._paths = watched_paths(python, self.env)
        self._marks: Fingerprint = fingerprint(self._paths)
        self._limits = conditions.limits()
        self.modules: frozenset[str] = frozenset()
        self.problem = ""
        self._began_at = time.monotonic()
        self._connection, theirs = socket.socketpair()
        command = [python, "-u", str(PROGRAM), "--data", str(data), "--connection", str(theirs.fileno())]
        (data / "node").mkdir(parents=True, exist_ok=True)
        with theirs, (data / "node" / "warm.log").open("wb") as output:
            self._process = subprocess.Popen(
                command, env=self.env, cwd="/", stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Wait until torch is imported; then `problem` says why nothing can be forked from it, if so."""
        received = None
        with suppress(OSError, ValueError):
            received = channel.receive(self._connection)
        message: dict[str, Any] = received[0] if received else {"problem": self._import_problem()}
        self.problem = message["problem"]
        self.modules = frozenset(message.get("modules", ()))
        self._connection.settimeout(ANSWER_LIMIT_S)

    def _import_problem(self) -> str:
        """Why it ended before torch was imported; nothing where somebody killed it, which can go well another time."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(ANSWER_LIMIT_S)
        was_killed = self._process.returncode in (-signal.SIGKILL, -signal.SIGTERM)
        return "" if was_killed else "torch could not be imported ahead"

    @property
    def is_current(self) -> bool:
        """Whether it would be the same if it were started now; one that cannot be forked from is not tried again."""
        return (
            (self._process.poll() is None or bool(self.problem))
            and fingerprint(self._paths) == self._marks
            and conditions.limits() == self._limits
        )

    @property
    def is_ready(self) -> bool:
        """Whether it can fork."""
        return bool(self.modules) and not self.problem and self._process.poll() is None

    @property
    def is_importing(self) -> bool:
        """Whether it can fork soon."""
        is_late = time.monotonic() - self._began_at > IMPORT_LIMIT_S
        return not (self.modules or self.problem or is_late) and self._process.poll() is None

    def obstacle(self, launch: Mapping[str, Any], env: Mapping[str, str]) -> str:
        """Why this launch cannot be forked from it, as a sentence; else nothing."""
        if conditions.torchrun_python(launch["argv"]) != self.python:
            return "it trains with another interpreter than the last run"
        if different := conditions.differing(self.env, env):
            return f"{different[0]} is not as it was when torch was imported"
        if fingerprint(self._paths) != self._marks:
            return "the interpreter's packages have changed"
        if conditions.limits() != self._limits:
            return "the worker's limits have changed"
        return "" if self.is_ready else (self.problem or NOT_YET)

    def fork(
        self, command: Sequence[str], env: Mapping[str, str], folder: Path, log_file: Path
    ) -> ForkedSupervisor | None:
        """Fork a supervisor with a torchrun that waits for its command; None if it does not answer."""
        request = {"command": list(command), "env": dict(env), "cwd": str(folder), "log": str(log_file)}
        try:
            channel.send(self._connection, request)
            received = channel.receive(self._connection)
        except (OSError, ValueError):
            received = None
        if received is None:
            return None
        pid = int(received[0]["pid"])
        return ForkedSupervisor(processes.find(pid) or Process(pid, 0))

    def memory_bytes(self) -> int:
        """Resident bytes; most of them are shared with what was forked from it."""
        with suppress(OSError, ValueError, IndexError):
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        return 0

    def close(self) -> None:
        """End it; what was forked from it continues."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
