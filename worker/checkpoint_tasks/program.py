"""Runs a program that works on checkpoints at idle priority, follows its progress, and ends it with all it started."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from domain.clock import SYSTEM_CLOCK, Clock
from worker import tensors
from worker.node import processes
from worker.session.bodies import MayContinue

log = logging.getLogger(__name__)
MODULE, PUSHING = "rankzero_tensors", "worker.pushing"
"""The programs: the first in the Python that trains, the second in the worker's own."""
TENSORS_FOLDER = str(Path(str(tensors.__file__)).parent)
"""The folder for PYTHONPATH; it holds nothing else that a program could import by accident."""
QUIET = {
    "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
    "CUDA_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "PYTHONSAFEPATH": "1",
}  # fmt: skip
"""Variables that keep it to one core, away from the GPUs, and from modules in its folder (as -P, of Python 3.11)."""
IDLE_IO = "3"
GRACE_S = 5.0
"""A program that is to end gets a SIGTERM, and after so many seconds a SIGKILL."""
LOOK_EVERY_S = 0.5
LONGEST_LINE_BYTES = 64 * 1024 * 1024
OnProgress = Callable[[int, int | None, str], None]
"""(bytes done, of so many, what is being done)."""


class TaskFailed(Exception):
    """The work cannot be done; the message is a sentence: what happened, the rule, what to do."""


class TaskCommand(NamedTuple):
    """A command for a Python."""

    python: str
    arguments: Sequence[str]
    env: Mapping[str, str]
    module: str = MODULE
    request: bytes = b""
    """For its standard input: secrets are in no argument, variable or file."""


class RunProgram(Protocol):
    """Run a command in a folder; return its result. Raises TaskFailed, also where it may not continue."""

    def __call__(
        self, command: TaskCommand, folder: Path, on_progress: OnProgress, may_continue: MayContinue, clock: Clock
    ) -> dict[str, Any]: ...


def run_program(
    command: TaskCommand,
    folder: Path,
    on_progress: OnProgress,
    may_continue: MayContinue,
    clock: Clock = SYSTEM_CLOCK,
) -> dict[str, Any]:
    """Run it as a process group of its own, which is gone on return."""
    errors = folder / "errors"
    process = _started(command, folder, errors)
    ended = threading.Event()
    clock.start("checkpoint task", lambda: _end_when_stopped(process, may_continue, ended, clock))
    try:
        answer = _answer(process.stdout, on_progress)
        return _result(answer, process.wait(), errors)
    finally:
        ended.set()
        _signal(process, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def end_leftovers(folder: Path, clock: Clock = SYSTEM_CLOCK) -> None:
    """Kill programs that an earlier worker, which was killed, left at work in this folder."""

    def leftovers() -> list[processes.Process]:
        return processes.with_arguments(
            lambda words: not {MODULE, PUSHING}.isdisjoint(words) and any(w.startswith(f"{folder}/") for w in words)
        )

    processes.kill_all(leftovers, GRACE_S, clock)


def _started(command: TaskCommand, folder: Path, errors: Path) -> subprocess.Popen[bytes]:
    """Start it at idle priority. Raises TaskFailed."""
    argv = [command.python, "-m", command.module, *command.arguments]
    paths = {"PYTHONPATH": TENSORS_FOLDER} if command.module == MODULE else {}
    env = processes.merged_environment(command.env, QUIET | paths, command.python)
    if (ionice := shutil.which("ionice")) is not None:
        argv = [ionice, "-c", IDLE_IO, *argv]
    try:
        with errors.open("wb") as file:
            process = subprocess.Popen(
                argv, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
                start_new_session=True,
            )  # fmt: skip
    except (OSError, ValueError) as error:
        raise TaskFailed(f"The Python {command.python} cannot be started ({error}): check it on this node.") from error
    _make_idle(process.pid)
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin:
        process.stdin.write(command.request)
    return process


def _make_idle(pid: int) -> None:
    """Let it have only what no other process of this machine wants."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, 19)


def _answer(output: IO[bytes] | None, on_progress: OnProgress) -> dict[str, Any]:
    """Read its lines to the end; return the last one that is no progress."""
    assert output is not None
    answer: dict[str, Any] = {}
    while line := output.readline(LONGEST_LINE_BYTES):
        message = _message(line)
        if "progress" in message:
            done_bytes, total_bytes, doing = message["progress"]
            on_progress(int(done_bytes), None if total_bytes is None else int(total_bytes), str(doing))
        elif message:
            answer = message
    return answer


def _message(line: bytes) -> dict[str, Any]:
    """A message of the program; nothing for what a library prints."""
    with suppress(ValueError):
        message = json.loads(line)
        if isinstance(message, dict):
            return message
    return {}


def _result(answer: Mapping[str, Any], exit_code: int, errors: Path) -> dict[str, Any]:
    if isinstance(result := answer.get("result"), dict):
        return result
    if sentence := answer.get("refused") or answer.get("failed"):
        raise TaskFailed(str(sentence))
    raise TaskFailed(_why(exit_code, errors))


def _why(exit_code: int, errors: Path) -> str:
    if exit_code == -signal.SIGKILL:
        return "The program was killed, most likely because this node's memory is full: free some, then try again."
    lines = [line for line in errors.read_text(errors="replace").splitlines() if line.strip()]
    last = f": {lines[-1].strip()[:500]}" if lines else ""
    return f"The program ended without a result (exit code {exit_code}){last}"


def _end_when_stopped(
    process: subprocess.Popen[bytes], may_continue: MayContinue, ended: threading.Event, clock: Clock
) -> None:
    while not clock.pause(LOOK_EVERY_S, ended):
        if not may_continue():
            _signal(process, signal.SIGTERM)
            if not clock.pause(GRACE_S, ended):
                _signal(process, signal.SIGKILL)
            return


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
