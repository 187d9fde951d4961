"""An `ssh` that runs on this machine what it would run on a host, so that the scripts are the real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cli.fleet.host_list import Destination, Machine
from cli.fleet.ssh import Connection, SshOptions

SSH = """#!/bin/sh
cat {folder}/errors >&2
[ -s {folder}/errors ] && exit 255
while [ "$1" != -- ]; do shift; done
export HOME={folder}/home PATH={folder}/bin:$PATH
cat {folder}/profile
exec {shell} -c "$3"
"""


class FakeHost:
    """A host behind the fake `ssh`; its programs can be replaced, its profile print, its `ssh` fail."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.home = folder, folder / "home"
        for name in ("home", "bin", "path", "sockets"):
            (folder / name).mkdir()
        for name in ("errors", "profile"):
            (folder / name).touch()
        self.use_shell("/bin/sh")
        monkeypatch.setenv("PATH", f"{folder / 'path'}:/usr/bin:/bin")

    def use_shell(self, shell: str) -> None:
        """Let another program be the login shell."""
        self._write(self.folder / "path/ssh", SSH.format(folder=self.folder, shell=shell))

    def replace(self, program: str, script: str) -> None:
        """Let a program of the host do something else."""
        self._write(self.folder / "bin" / program, f"#!/bin/sh\n{script}\n")

    def fail(self, errors: str) -> None:
        """Let `ssh` fail, with these lines."""
        (self.folder / "errors").write_text(errors)

    def do(self, work: Callable[[Connection], Awaitable[Any]], machine: Machine | None = None) -> Any:
        """Work on a connection to the host."""

        async def connected() -> Any:
            options = SshOptions(self.folder / "sockets")
            async with Connection(machine or Machine(Destination("gpu-1", "me")), options, 0).opened() as connection:
                return await work(connection)

        return asyncio.run(connected())

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    return FakeHost(tmp_path, monkeypatch)
