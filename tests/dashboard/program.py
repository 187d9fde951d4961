"""A started `rankzero dashboard`, as a program of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.end_to_end.product import WITHOUT_TLS, wait_for

LIMIT_S = 180


class Program:
    """The program and what it has written."""

    def __init__(self, data: Path, *options: str, cwd: Path | None = None) -> None:
        self.data = data
        self.log = data.parent / "log"
        argv = [sys.executable, "-P", "-m", "cli.main", "dashboard", "--data", str(data), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=cwd)

    def wait_ready(self) -> Program:
        """Until it says where it is."""
        wait_for(lambda: self.about or self.process.poll() is not None, "server.json", LIMIT_S)
        assert self.about, self.log.read_text()
        return self

    @property
    def about(self) -> dict[str, Any]:
        """server.json, or nothing."""
        with suppress(OSError, ValueError):
            server_file: dict[str, Any] = json.loads((self.data / "server.json").read_text())
            return server_file if server_file["pid"] == self.process.pid else {}
        return {}

    @property
    def token(self) -> str:
        """The login token."""
        return (self.data / "token").read_text().strip()

    def get(self, path: str, **headers: str) -> httpx2.Response:
        """A request with the token."""
        bearer = {"Authorization": f"Bearer {self.token}"}
        return httpx2.get(self.about["url"] + path, headers=bearer | headers, timeout=60, **WITHOUT_TLS)

    def exit_code(self) -> int:
        """Wait until it ends by itself; it has ended afterwards in any case."""
        try:
            return self.process.wait(LIMIT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def end(self, sig: int = signal.SIGTERM) -> None:
        """End it in order."""
        self.process.send_signal(sig)
        self.process.wait(LIMIT_S)


@contextmanager
def dashboard(data: Path, *options: str, cwd: Path | None = None) -> Iterator[Program]:
    """A dashboard on a free port; it has ended afterwards."""
    program = Program(data, "--port", "0", *options, cwd=cwd)
    try:
        yield program.wait_ready()
    finally:
        program.kill()
