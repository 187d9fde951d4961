"""`rankzero nodes add, upgrade, doctor`: install workers on other machines over `ssh`, and look after them there."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from cli.commands.preflight import checked, print_matrix
from cli.server.client import ServerClient
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, print_json, print_table, say
from domain.text import formats

TOKEN_TTL_S = 3600.0
"""Seconds that the join token of one command is valid; it is revoked when the command ends."""

FromFile = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="File that lists more hosts; - is standard input.")
]
User = Annotated[str | None, typer.Option(help="User of hosts that name none.", show_default="as ssh has it")]
Port = Annotated[
    int | None, typer.Option(min=1, max=65_535, help="Port of hosts that name none.", show_default="as ssh has it")
]
Jump = Annotated[str | None, typer.Option(metavar="HOST", help="Connect through this host.", show_default=False)]
Parallel = Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Hosts at a time.")]
AcceptNew = Annotated[
    bool, typer.Option("--accept-new", help="Accept the host keys of hosts that are not in known_hosts, unseen.")
]
Folder = Annotated[str, typer.Option(metavar="PATH", help="Folder on the hosts for everything that is installed.")]


def add(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(metavar="HOST…", help="[user@]name[:port], gpu-[1-8], or a pattern of ~/.ssh/config."),
    ] = None,
    from_file: FromFile = None,
    user: User = None,
    port: Port = None,
    jump: Jump = None,
    parallel: Parallel = 8,
    accept_new: AcceptNew = False,
    folder: Folder = "~/.local/share/rankzero-node",
    python: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Python on the hosts for runs that name none.", show_default=False),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Maximum CPU ranks on each.", show_default="GPUs, or CPU cores")
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Install a worker on other machines over `ssh`, without root, and let them join. Safe to repeat."""
    from cli.fleet import installing
    from cli.fleet.fleet import Fleet

    listed = named_hosts(hosts or [], from_file, user, port)
    server = server_at(data)
    fleet = Fleet(server, parallel, jump, accept_new, is_quiet=as_json)
    with planned(server, folder, {"python": python, "slots": slots}) as plan:
        done = asyncio.run(fleet.each(listed, "add", "joined", lambda link, state: installing.add(link, plan, state)))
    finish(server, done, as_json)


def named_hosts(words: list[str], from_file: Path | None, user: str | None, port: int | None) -> list[Any]:
    """Return the hosts of a command line. Raises CommandFailed where there are none."""
    from cli.fleet.host_list import hosts_of, words_in

    if from_file is not None:
        try:
            words = words + words_in(sys.stdin.read() if str(from_file) == "-" else from_file.read_text())
        except (OSError, ValueError) as error:
            raise CommandFailed(f"{from_file} cannot be read: {error}.", 2) from None
    config = ""
    with suppress(OSError):
        config = (Path.home() / ".ssh/config").read_text(errors="replace")
    hosts = hosts_of(words, user, port, config)
    if not hosts:
        raise CommandFailed("Name the hosts: `rankzero nodes add gpu-[1-8] me@10.0.0.4`, or --from FILE.", 2)
    return hosts


@contextmanager
def planned(server: ServerClient, folder: str, options: dict[str, Any]) -> Iterator[Any]:
    """Make a join token and what the hosts are brought; the token ends with the command. Raises CommandFailed."""
    from platformdirs import user_cache_path

    from cli.fleet.brought import Brought
    from cli.fleet.installing import Plan

    token = server.post("/api/join-tokens", {"ttl_s": TOKEN_TTL_S, "name": "rankzero nodes add"})
    try:
        if token["warning"]:
            raise CommandFailed(f"{token['warning']} Nothing has been installed.")
        with tempfile.TemporaryDirectory(prefix="rankzero-") as work:
            yield Plan(
                brought=Brought(user_cache_path("rankzero", appauthor=False) / "fleet", Path(work)),
                urls=[token["url"], *addresses_by_ssh(server)],
                node_ids=lambda: {
                    node["id"]: node["name"] for node in server.get("/api/nodes") if node["state"] == "alive"
                },
                token=token["token"],
                folder=folder,
                options={name: value for name, value in options.items() if value is not None},
            )
    finally:
        with suppress(CommandFailed):
            server.delete(f"/api/join-tokens/{token['id']}")


def addresses_by_ssh(server: ServerClient) -> list[str]:
    """Return the dashboard's URL with `ssh` for the address from which a node is connected, if that is this machine."""
    return [f"http://ssh:{urlsplit(server.address.url).port or 80}"] if server.address.is_local else []


def finish(server: ServerClient, done: list[Any], as_json: bool) -> None:
    """Print how it went, check the nodes together, and end. Raises typer.Exit with code 1 where a host has failed."""
    from cli.fleet.progress import FAILED

    failed = [host for host in done if host.state == FAILED]
    nodes = [host.node for host in done if host.state != FAILED]
    if as_json:
        print_json([host.document() for host in done])
    else:
        rows = [(host.host, host.node or "", host.state, f"{host.seconds:.1f}", host.message) for host in done]
        print_table(("host", "node", "state", "s", "message"), rows, right=frozenset({3}))
        say(f"{formats.plural(len(nodes), 'host')} joined" + (f", {len(failed)} failed." if failed else "."))
        if nodes:
            print_matrix(checked(server, nodes))
    if failed:
        raise typer.Exit(1)
