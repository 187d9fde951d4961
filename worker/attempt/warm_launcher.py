"""The torchrun that was forked for a supervisor instead of started by it: its child all the same."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from worker.warm.rankzero_warm import channel
from worker.warm.rankzero_warm.server import LAUNCHER_VARIABLE


class WarmLauncher:
    """Waits for its command; then has the part of the interface of `subprocess.Popen` that a supervisor uses."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid, self._connection = pid, connection
        self.returncode: int | None = None

    @classmethod
    def inherited(cls, own: MutableMapping[str, str]) -> WarmLauncher | None:
        """The child that this process had before it became a supervisor; its variable is removed."""
        pid, _, descriptor = own.pop(LAUNCHER_VARIABLE, "").partition(":")
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
