"""The live table of a command on many hosts: on the terminal, and on the dashboard's Nodes page."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from cli.fleet.progress import HostProgress, done_word
from cli.server.client import ServerClient
from cli.terminal import CommandFailed, printable, warn
from domain.lists.node_lists import FAILED, HOSTS, WAITING, WORKING

if TYPE_CHECKING:
    from rich.table import Table

REPORT_EVERY_S = 1.0
COLOURS = {WAITING: "dim", WORKING: "", FAILED: "red"}


class Display:
    """What a person sees while the hosts are worked on: a table that changes, or without a terminal a line per step."""

    def __init__(self, hosts: Sequence[HostProgress], is_quiet: bool) -> None:
        self._hosts = hosts
        self._live = None
        if is_quiet:
            return
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, markup=False, highlight=False, emoji=False)
            self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4, transient=True)
        else:
            for host in hosts:
                host.changed = _print_change

    def show(self) -> None:
        """Show the table from now on."""
        if self._live is not None:
            self._live.start(refresh=True)

    def hide(self) -> None:
        """Leave the terminal to others; the table stays as it is."""
        if self._live is not None:
            self._live.stop()

    def _table(self) -> Table:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", caption=done_word(self._hosts))
        for column in HOSTS:
            table.add_column(column.title, justify="right" if column.is_figure else "left", overflow="fold")
        for host in self._hosts:
            colours = {"state": COLOURS.get(host.state, "green")}
            table.add_row(*(Text(printable(one.cell(host)), colours.get(one.title, "")) for one in HOSTS))
        return table


def _print_change(host: HostProgress) -> None:
    message = f": {host.message}" if host.message else ""
    warn(f"{host.host}  {host.state if host.is_over else host.step}{message}")


@asynccontextmanager
async def reporting(server: ServerClient, action: str, hosts: Sequence[HostProgress]) -> AsyncIterator[None]:
    """Report to the dashboard's Nodes page how far the hosts are; one that does not answer holds nothing up."""
    key = secrets.token_hex(8)

    async def report(is_over: bool) -> None:
        body = {"action": action, "is_over": is_over, "hosts": [host.live_document() for host in hosts]}
        with suppress(CommandFailed):
            await asyncio.to_thread(server.put, f"/api/node-installations/{key}", body)

    async def keep_reporting() -> None:
        while True:
            await report(is_over=False)
            await asyncio.sleep(REPORT_EVERY_S)

    task = asyncio.create_task(keep_reporting())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await report(is_over=True)
