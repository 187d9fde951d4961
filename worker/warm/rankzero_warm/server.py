"""The process that has torch imported: forks a supervisor's process and its torchrun for each request."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from importlib import import_module

from . import channel, identity
from .ranks import HANDLERS, fork_spares, start_through
from .reads import Reads, named_by_site
from .training_program import Program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def serve(arguments: Sequence[str]) -> Program:
    """Serve the worker until it closes the connection, then exit; returns in forked processes what they are to run.

    `arguments`: --data DIR --connection DESCRIPTOR"""
    connection = socket.socket(fileno=int(arguments[-1]))
    connection.set_inheritable(False)
    identity.die_with_parent(signal.SIGKILL)
    names = named_by_site()
    with Reads() as reads:
        problem = _import_torch(connection.fileno())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the supervisors here
    facts = {"modules": _top_level_modules(), "reads": sorted(names | reads.names)}
    channel.send(connection, {"problem": problem, "readers_of_all": sorted(reads.readers_of_all), **facts})
    while not problem:
        received = channel.receive(connection)
        if received is None:
            break
        request, (more,) = received
        pid = os.fork()
        if pid == 0:
            return _start(connection, request, more)
        os.close(more)
        channel.send(connection, {"pid": pid})
    os._exit(0)


def _import_torch(own: int) -> str:
    """Import what torchrun and most scripts import; returns why nothing can be forked from here, else nothing."""
    import torch  # isort: skip
    import torch._dynamo
    import torch.distributed.run
    import torch.nn.parallel.distributed
    import torch.utils.data

    if not hasattr(getattr(import_module(HANDLERS), "SubprocessHandler", None), "_popen"):
        return f"torch {torch.__version__} starts its ranks in another way"
    return _test_fork() or _unforkable(own)


def _test_fork() -> str:
    """Check in a forked process that the kernel shows its command and environment as its own."""
    pid = os.fork()  # also ends OpenBLAS's threads, which it starts again on demand
    if pid == 0:
        argv, env = ["python", "a b"], {"RANK": "0", "EMPTY": ""}
        try:
            identity.take(argv, env)
            os._exit(0 if identity.is_shown(argv, env) else 1)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    return "" if status == 0 else "this kernel does not show a forked process under another command"


def _unforkable(own: int) -> str:
    """The thread, process or open file that the imports left and a fork would lack or share; else nothing.

    `own`: the descriptor of the connection to the worker, which is no such file."""
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    if threads > 1 or threading.active_count() > 1:
        return "importing torch starts a thread here"
    with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
        if file.read().split():
            return "importing torch starts a process here"
    files = [os.readlink(f"/proc/self/fd/{number}") for number in _descriptors() if number > 2 and number != own]  # noqa: PTH115
    return f"importing torch opens a file here ({files[0]})" if files else ""


def _descriptors() -> list[int]:
    numbers = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            os.fstat(int(name))
            numbers.append(int(name))
        except OSError:  # the one with which the folder was read
            continue
    return numbers


def _top_level_modules() -> list[str]:
    return sorted({name.partition(".")[0] for name in sys.modules})


def _start(connection: socket.socket, request: dict[str, Any], more: int) -> Program:
    """Become the supervisor by exec, after forking its torchrun, so that it is its child; returns in torchrun.

    `more`: descriptor of a file with further variables of the supervisor, which are read in this process alone."""
    connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    ours, theirs = socket.socketpair()
    own = os.getpid()
    pid = os.fork()
    if pid == 0:
        ours.close()
        os.close(more)
        identity.die_with_parent(signal.SIGTERM)
        if os.getppid() != own:
            os._exit(1)
        return _wait_as_agent(theirs)
    try:
        os.chdir(request["cwd"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        ours.set_inheritable(True)
        with os.fdopen(more, "rb") as file:
            env = {**request["env"], **json.load(file), channel.LAUNCHER_VARIABLE: f"{pid}:{ours.fileno()}"}
        theirs.close()
        os.execve(request["command"][0], request["command"], env)
    finally:
        os._exit(127)


def _wait_as_agent(connection: socket.socket) -> Program:
    """Wait for the supervisor's command, then be torchrun."""
    received = channel.receive(connection)
    if received is None:
        os._exit(0)
    message, (out, err) = received
    connection.close()
    os.chdir(message["cwd"])
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    argv, env = message["argv"], message["env"]
    command = [sys.executable, *argv]
    identity.take(command, env)
    program = Program(command, argv[0], argv[1:], is_module=False, is_launcher=True)
    try:
        program.read()
        spares = fork_spares(int(message["processes"]))
    except (OSError, ValueError):
        os.execve(argv[0], argv, env)
    if isinstance(spares, Program):
        return spares
    start_through(spares)
    return program
