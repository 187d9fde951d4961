"""One command on many hosts at a time, each over a connection of its own."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from cli.fleet.host_list import Machine
from cli.fleet.progress import FAILED, HostProgress
from cli.fleet.ssh import Connection, HostTrouble, SshOptions
from cli.fleet.table import Display, told
from cli.server.client import ServerClient
from cli.terminal import CommandFailed

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

    async def each(
        self, machines: Sequence[Machine], action: str | None, done_state: str, work: Work
    ) -> list[HostProgress]:
        """Work on every machine, `parallel` at a time; one's trouble is no other's.

        The Nodes page shows the `action`, unless that is None."""
        progress = [HostProgress(machine) for machine in machines]
        display, turn = Display(progress, self._is_quiet), asyncio.Semaphore(self._parallel)
        with tempfile.TemporaryDirectory(prefix="rz") as sockets:
            terminal = Terminal(display) if sys.stdin.isatty() and sys.stderr.isatty() else None
            options = SshOptions(Path(sockets), self._accept_new, terminal)

            async def one(number: int, state: HostProgress) -> None:
                async with turn:
                    state.at("connecting")
                    try:
                        async with Connection(state.machine, options, number).opened() as connection:
                            state.end(done_state, await work(connection, state))
                    except (HostTrouble, CommandFailed) as trouble:
                        state.end(FAILED, str(trouble))
                    except OSError as error:  # no space here for what is brought there
                        state.end(FAILED, f"on this machine: {error.strerror or error}.")

            async with self._shown(action, progress, display):
                await asyncio.gather(*(one(number, state) for number, state in enumerate(progress)))
        return progress

    @asynccontextmanager
    async def _shown(self, action: str | None, hosts: Sequence[HostProgress], display: Display) -> AsyncIterator[None]:
        """Show the progress on the terminal and on the Nodes page."""
        display.show()
        try:
            if action is None:
                yield
            else:
                async with told(self._server, action, hosts):
                    yield
        finally:
            display.hide()
