"""One command on many hosts at a time, each over a connection of its own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from cli.fleet.host_list import Machine
from cli.fleet.progress import HostProgress
from cli.fleet.ssh import Connection, HostTrouble, SshOptions
from cli.fleet.table import Display, reporting
from cli.server.client import ServerClient
from cli.terminal import CommandFailed
from domain.lists.node_lists import FAILED

Work = Callable[[Connection, HostProgress], Awaitable[str]]
PARALLEL = 8


class Terminal(asyncio.Lock):
    """The terminal, which is `ssh`'s while it asks something; the table waits."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self._display = display

    async def __aenter__(self) -> None:
        await super().__aenter__()
        self._display.hide()

    async def __aexit__(self, *error: object) -> None:
        self._display.show()
        self.release()


class Fleet:
    """Hosts, and how they are connected."""

    def __init__(
        self, server: ServerClient, is_quiet: bool, parallel: int = PARALLEL, accept_new: bool = False
    ) -> None:
        self._server, self._is_quiet = server, is_quiet
        self._parallel, self._accept_new = parallel, accept_new

    async def work_on(
        self, machines: Sequence[Machine], action: str | None, done_state: str, work: Work
    ) -> list[HostProgress]:
        """Do the work on every machine, `parallel` at a time; one's trouble is no other's.

        The Nodes page shows the `action`, unless that is None."""
        hosts = [HostProgress(machine) for machine in machines]
        display, turn = Display(hosts, self._is_quiet), asyncio.Semaphore(self._parallel)
        with tempfile.TemporaryDirectory(prefix="rz") as sockets:
            terminal = Terminal(display) if sys.stdin.isatty() and sys.stderr.isatty() else None
            options = SshOptions(Path(sockets), self._accept_new, terminal)

            async def work_on_host(number: int, host: HostProgress) -> None:
                async with turn:
                    host.at("connecting")
                    try:
                        async with Connection(host.machine, options, number).opened() as connection:
                            host.end(done_state, await work(connection, host))
                    except (HostTrouble, CommandFailed) as trouble:
                        host.end(FAILED, str(trouble))
                    except OSError as error:  # no space here for what is brought there
                        host.end(FAILED, f"on this machine: {error.strerror or error}.")

            async with self._shown(action, hosts, display):
                await asyncio.gather(*(work_on_host(number, host) for number, host in enumerate(hosts)))
        return hosts

    @asynccontextmanager
    async def _shown(self, action: str | None, hosts: Sequence[HostProgress], display: Display) -> AsyncIterator[None]:
        """Show the progress on the terminal and on the Nodes page."""
        display.show()
        try:
            if action is None:
                yield
            else:
                async with reporting(self._server, action, hosts):
                    yield
        finally:
            display.hide()
