"""Supervise the programs of `rankzero up`: start, watch and restart them, and end them with the parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from domain.text.formats import describe_exit
from worker.node.processes import die_with_parent

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
STEADY_S = 60.0
"""Uptime in seconds after which the restart delay is reset."""
LARGEST_LOG_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class ProgramCommand:
    """A program to start: command line, log file and environment."""

    name: str
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str]


class SupervisedProgram:
    """A program that `step` starts when it is due and restarts after it ended."""

    def __init__(
        self,
        program: ProgramCommand,
        start: Callable[[ProgramCommand], subprocess.Popen[bytes]] | None = None,
    ) -> None:
        self.program = program
        self._start = start or start_program
        self._process: subprocess.Popen[bytes] | None = None
        self._start_at: float | None = 0.0
        self._started_at = 0.0
        self._delay_s = FIRST_DELAY_S
        self._is_over = False
        self._log_began_at = 0

    @property
    def pid(self) -> int | None:
        """Process id, None while it does not run."""
        return self._process.pid if self._process is not None else None

    @property
    def is_running(self) -> bool:
        """Whether its process exists."""
        return self._process is not None and self._process.poll() is None

    def step(self, now: float) -> str | None:
        """Start the program or notice its end; returns a sentence for the user where it ended."""
        if self._process is None:
            if self._start_at is not None and now >= self._start_at:
                self._log_began_at = _size(self.program.log)
                self._process = self._start(self.program)
                self._started_at = now
            return None
        code = self._process.poll()
        if code is None or self._is_over:
            return None
        return self._ended(code, now)

    def _ended(self, code: int, now: float) -> str:
        self._process = None
        if now - self._started_at >= STEADY_S:
            self._delay_s = FIRST_DELAY_S
        delay_s = self._delay_s
        self._start_at = now + delay_s
        self._delay_s = min(self._delay_s * 2, LONGEST_DELAY_S)
        last_line = self.last_line() if code > 0 else ""  # what was killed has not said why
        return (
            f"{self.program.name} ended ({describe_exit(code)}{': ' + last_line if last_line else ''}), "
            f"restarting it in {delay_s:g} s"
        )

    def last_line(self) -> str:
        """Return the last line that the program has logged since its start."""
        try:
            with self.program.log.open("rb") as log:
                log.seek(max(self._log_began_at, _size(self.program.log) - 4096))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].strip()[:500] if lines else ""

    def trim_log(self) -> None:
        """Move a large log to `….1`, so that it cannot fill the disk."""
        if _size(self.program.log) > LARGEST_LOG_BYTES:
            older = self.program.log.with_name(self.program.log.name + ".1")
            older.write_bytes(self.program.log.read_bytes())
            os.truncate(self.program.log, 0)  # the program appends, so it continues at the start

    def send(self, number: int) -> None:
        """Send a signal to the program if it runs; it is not restarted afterwards."""
        self._start_at, self._is_over = None, True
        if self.is_running and self._process is not None:
            self._process.send_signal(number)


def start_program(program: ProgramCommand) -> subprocess.Popen[bytes]:
    """Start a program in its own session, so that Ctrl-C reaches only the parent; it dies with the parent."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    log = os.open(program.log, flags, 0o600)
    try:
        return subprocess.Popen(
            program.argv,
            env=program.env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_prepare(os.getpid()),
        )
    finally:
        os.close(log)


def _prepare(parent_pid: int) -> Callable[[], None]:
    def prepare() -> None:
        if sys.platform == "linux":
            die_with_parent(signal.SIGKILL)
        if os.getppid() != parent_pid:  # it died before the line above
            os._exit(1)

    return prepare


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
