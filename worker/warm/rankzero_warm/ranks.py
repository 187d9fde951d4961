"""Ranks forked ahead of torchrun, which hands each its command and environment instead of starting a Python."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module

from . import channel, identity
from .training_program import Program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

HANDLERS = "torch.distributed.elastic.multiprocessing.subprocess_handler.handlers"
"""The module from which torchrun takes `SubprocessHandler`, which starts a rank and watches it."""
HANDLED_SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
"""The signals that torchrun handles, unless its variable names others."""
READY = b"."
PAUSE_S = 0.01


class Spare:
    """A forked process that waits to become a rank."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid, self._connection = pid, connection

    def become(self, args: Sequence[str], env: Mapping[str, str], outputs: Sequence[Any]) -> bool:
        """Make it the rank of this command; False if it has ended. `outputs`: standard output and error."""
        try:
            descriptors = [1 + number if file is None else file.fileno() for number, file in enumerate(outputs)]
            channel.send(self._connection, {"args": list(args), "env": dict(env)}, descriptors)
            return self._connection.recv(1) == READY  # from now on it leads its session, as after exec
        except OSError:
            return False
        finally:
            self._connection.close()

    def forget(self) -> None:
        """Close the connection in another spare process."""
        self._connection.close()


class ForkedProcess:
    """A rank that was forked, with the part of the interface of `subprocess.Popen` that torchrun uses."""

    def __init__(self, args: Sequence[str], pid: int) -> None:
        self.args, self.pid = args, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0.0)
            time.sleep(PAUSE_S)
        return code

    def send_signal(self, number: int) -> None:
        """Signal it unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def fork_spares(count: int) -> list[Spare] | Program:
    """Fork this many; the list in the parent, and in each of them, once torchrun needs it, what it is to run."""
    spares: list[Spare] = []
    for _ in range(count):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            for spare in spares:
                spare.forget()
            return _wait_as_spare(theirs)
        theirs.close()
        spares.append(Spare(pid, ours))
    return spares


def start_through(spares: list[Spare]) -> None:
    """Let torchrun start its ranks from these; when none is left, as it always does."""
    handlers: Any = import_module(HANDLERS)

    class WarmHandler(handlers.SubprocessHandler):  # type: ignore[misc]
        def _popen(self, args: Sequence[str], env: Mapping[str, str]) -> Any:
            if args[0] == sys.executable:
                while spares:
                    spare = spares.pop(0)
                    if spare.become(args, env, (self._stdout, self._stderr)):
                        return ForkedProcess(args, spare.pid)
                    ForkedProcess(args, spare.pid).kill()
            return super()._popen(args, env)

    handlers.SubprocessHandler = WarmHandler


def _wait_as_spare(connection: socket.socket) -> Program:
    received = channel.receive(connection)
    if received is None:
        os._exit(0)
    message, descriptors = received
    args, env = message["args"], message["env"]
    os.setsid()
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    identity.take(args, env)
    _reset_signals(env)
    connection.sendall(READY)
    connection.close()
    program = _program(args)
    if program is None:
        os.execve(args[0], args, env)
    _renew()
    _switch_on_probe(env)
    return program


def _program(args: Sequence[str]) -> Program | None:
    """The program of torchrun's command `PYTHON -u [-m] NAME ARGUMENT…`; None where Python itself must judge it."""
    is_module = args[2] == "-m"
    name, *arguments = args[3 if is_module else 2 :]
    program = Program(args, name, arguments, is_module)
    try:
        program.read()
        return program
    except (OSError, ValueError):
        return None


def _reset_signals(env: Mapping[str, str]) -> None:
    """Undo that this worker ignores some, as under nohup: torchrun handles them, and exec resets what is handled."""
    for name in env.get("TORCHELASTIC_SIGNALS_TO_HANDLE", HANDLED_SIGNALS).split(","):
        number = getattr(signal, name.strip(), None)
        if isinstance(number, signal.Signals):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _renew() -> None:
    """Draw again what every Python draws from the system at its start, so that ranks do not share it."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None:
        multiprocessing.current_process().authkey = os.urandom(32)
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    sys.modules["torch"].default_generator.seed()


def _switch_on_probe(env: Mapping[str, str]) -> None:
    """Do what the probe's sitecustomize does when a Python starts."""
    folder = env.get("PYTHONPATH", "").partition(":")[0]
    if not env.get("RANKZERO_PROBE_DIR") or not folder:
        return
    sys.path.insert(0, folder)
    try:
        import rankzero_probe  # type: ignore[import-not-found, unused-ignore]

        rankzero_probe.switch_on()
    except Exception:  # nosec B110: a training must not fail because it is watched
        pass
    finally:
        sys.path.remove(folder)
