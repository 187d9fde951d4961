"""One command on many hosts at a time, each over a connection of its own."""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from cli.fleet.host_list import Host
from cli.fleet.progress import FAILED, HostProgress
from cli.fleet.ssh import Connection, HostTrouble, SshOptions
from cli.fleet.table import Display, tell_dashboard, tell_once
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

    def __init__(self, server: ServerClient, parallel: int, jump: str | None, accept_new: bool, is_quiet: bool) -> None:
        self._server, self._parallel, self._is_quiet = server, parallel, is_quiet
        self._jump, self._accept_new = jump, accept_new

    async def each(self, hosts: Sequence[Host], action: str, done_state: str, work: Work) -> list[HostProgress]:
        """Work on every host, `parallel` at a time; one host's trouble is no other's."""
        progress = [HostProgress(host) for host in hosts]
        display, turn = Display(progress, self._is_quiet), asyncio.Semaphore(self._parallel)
        with tempfile.TemporaryDirectory(prefix="rz") as sockets:
            terminal = Terminal(display) if sys.stdin.isatty() and sys.stderr.isatty() else None
            options = SshOptions(Path(sockets), self._jump, self._accept_new, terminal)

            async def one(number: int, state: HostProgress) -> None:
                async with turn:
                    state.at("connecting")
                    try:
                        async with Connection(state.host, options, number).opened() as connection:
                            state.end(done_state, await work(connection, state))
                    except HostTrouble as trouble:
                        state.end(FAILED, str(trouble))

            async with self._shown(action, progress, display):
                await asyncio.gather(*(one(number, state) for number, state in enumerate(progress)))
        return progress

    @asynccontextmanager
    async def _shown(self, action: str, hosts: Sequence[HostProgress], display: Display) -> AsyncIterator[None]:
        """Show the progress on the terminal and on the Nodes page."""
        key = secrets.token_hex(8)
        telling = asyncio.create_task(tell_dashboard(self._server, action, key, hosts))
        display.show()
        try:
            yield
        finally:
            display.hide()
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling
            with suppress(CommandFailed):
                await asyncio.to_thread(tell_once, self._server, action, key, hosts, True)
