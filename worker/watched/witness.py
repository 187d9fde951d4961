"""Tells whether a signal was sent to more processes than this one: then the watched command has it already.

Slurm signals every process of a step, `timeout` and `kill %1` a process group, `docker stop` and `kill PID` only us.
A command that gets SIGTERM twice may give up saving its checkpoint, one that does not get it never saves. A child in
our group, which blocks all signals, shows it: what is pending there was sent to all.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from domain.clock import Clock
from worker.node.processes import die_with_parent

WAIT_S = 0.2
"""A sender that signals many processes has reached all of them by then."""
POLL_S = 0.02
COMMAND = ("sleep", "2147483647")


class Witness:
    """The child that blocks the signals which its parent blocks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._process = _start()

    def has(self, number: int) -> bool:
        """Whether this signal, which has just come, was sent to others too."""
        until = self._clock.now() + WAIT_S
        while self._process is not None:
            if _is_pending(self._process.pid, number):
                self.end()
                self._process = _start()  # the next one must not be taken for this one
                return True
            if self._clock.now() >= until:
                return False
            self._clock.pause(POLL_S)
        return False

    def end(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _start() -> subprocess.Popen[bytes] | None:
    with suppress(OSError, subprocess.SubprocessError):
        null = subprocess.DEVNULL
        return subprocess.Popen(COMMAND, stdin=null, stdout=null, stderr=null, preexec_fn=_die_with_us)
    return None


def _die_with_us() -> None:
    die_with_parent(signal.SIGKILL)


def _is_pending(pid: int, number: int) -> bool:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("ShdPnd:", "SigPnd:")) and int(line.split()[1], 16) >> (number - 1) & 1:
                return True
    return False
