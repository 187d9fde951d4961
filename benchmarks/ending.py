"""Ends what a measurement started, also when the measurement is asked to end before it is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from worker.node import processes

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 30.0
"""For what is left of a measurement, from SIGTERM to SIGKILL."""


def exit_when_asked() -> None:
    """Let the first of these signals raise SystemExit: what was started is ended on the way out, undisturbed.

    A signal that is ignored (nohup) stays so."""

    def leave(number: int, _frame: object) -> None:
        for each in heard:
            signal.signal(each, lambda *_: None)
        sys.exit(128 + number)

    heard = [number for number in ASKING if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        signal.signal(number, leave)


def run_whole(command: list[str], cwd: Path) -> int:
    """Run a command and end everything that it left; returns its exit code. An asked end is passed on to it."""
    processes.become_subreaper()
    try:
        with subprocess.Popen(command, cwd=cwd) as process:
            try:
                while process.poll() is None:
                    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
                    processes.reap_orphans(keep=process.pid)
            except SystemExit:
                process.terminate()
                raise
        return process.returncode
    finally:
        _end(psutil.Process().children(recursive=True))


def _end(left: list[psutil.Process]) -> None:
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(left, GRACE_S)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()
