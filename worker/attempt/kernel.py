"""The kernel's part in a supervisor's work: it starts the launcher, delivers signals, and has the children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from worker.node import processes
from worker.warm.rankzero_warm import channel

SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}


class Launcher(Protocol):
    """The part of the interface of `subprocess.Popen` that a supervisor uses."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None: ...

    def terminate(self) -> None: ...


class Kernel:
    """The kernel, for the process that calls it."""

    def __init__(self, warm: WarmLauncher | None = None) -> None:
        """Block the signals that `wait` returns; `warm`: the launcher that was forked for this process."""
        self._warm = warm
        self.pid = os.getpid()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

    def start(self, launch: Mapping[str, Any], env: Mapping[str, str], out: BinaryIO, err: BinaryIO) -> Launcher:
        """Start the command of launch.json. Raises OSError, ValueError, subprocess.SubprocessError."""
        if self._warm is not None and self._warm.start(launch, env, out, err):
            return self._warm
        return subprocess.Popen(
            launch["argv"], env=env, cwd=launch["cwd"], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            preexec_fn=_prepare_launcher,
        )  # fmt: skip

    def wait(self, seconds: float) -> int | None:
        """Return the first signal that arrives, None if the time is over before."""
        received = signal.sigtimedwait(SIGNALS, seconds)
        # Stopped for longer than that and continued, Python returns what it never filled in.
        return received.si_signo if received is not None and received.si_signo in SIGNALS else None

    def reap(self, keep: int | None) -> None:
        """Collect the exit status of every dead child except `keep`, which has a waiter of its own."""
        processes.reap_orphans(keep)

    def has_children(self) -> bool:
        """Whether this process has children; a subreaper without children has no descendants at all."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        return True


def _prepare_launcher() -> None:
    """Unblock signals and tie the child to the supervisor's life; runs in the child before exec."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    processes.die_with_parent(signal.SIGTERM)


class WarmLauncher:
    """The torchrun that was forked for a supervisor instead of started by it: still its child."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid, self._connection = pid, connection
        self.returncode: int | None = None

    @classmethod
    def inherited(cls, own: MutableMapping[str, str]) -> WarmLauncher | None:
        """The child that this process had before it became a supervisor; its variable is removed."""
        pid, _, descriptor = own.pop(channel.LAUNCHER_VARIABLE, "").partition(":")
        if not (pid.isdigit() and descriptor.isdigit()):
            return None
        os.set_inheritable(int(descriptor), False)
        return cls(int(pid), socket.socket(fileno=int(descriptor)))

    def start(self, launch: Mapping[str, Any], env: Mapping[str, str], out: BinaryIO, err: BinaryIO) -> bool:
        """Give it the command of launch.json; False, and it is gone, where Popen must report the failure."""
        message = {name: launch[name] for name in ("argv", "cwd", "processes")} | {"env": dict(env)}
        can_start = os.access(launch["cwd"], os.X_OK) and Path(launch["argv"][0]).is_file()
        with suppress(OSError):
            if can_start and self.poll() is None:
                channel.send(self._connection, message, (out.fileno(), err.fileno()))
                self._connection.close()
                return True
        self.end()
        return False

    def end(self) -> None:
        """End it before it has a command."""
        self._connection.close()
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def terminate(self) -> None:
        """Send SIGTERM unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
