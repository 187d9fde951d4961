"""`rankzero nodes add, upgrade, doctor, remove`: workers on other machines, installed and looked after over `ssh`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import ceil
from pathlib import Path
from socket import AF_INET
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from cli.commands.installation.preflight import checked, print_matrix
from cli.server.client import ServerClient
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, print_json, print_list, print_outcome, print_table, warn
from domain.lists.node_lists import HOSTS
from domain.text.formats import state_label

if TYPE_CHECKING:
    from cli.fleet.host_list import Destination
    from cli.fleet.installing import DoctorCheck, InstallationPlan
    from cli.fleet.progress import HostProgress
    from cli.fleet.ssh import Connection

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Its name or id.", show_default=False)]
TOKEN_TTL_S = 900.0
"""Seconds that the join token is valid for each round of hosts; it is revoked when the command ends."""
USES_PER_HOST = 2
"""A worker whose answer was lost registers again."""
MOST_ADDRESSES = 16

FromFile = Annotated[
    Path | None, typer.Option("--from", metavar="FILE", help="File that lists more hosts; - is standard input.")
]
User = Annotated[str | None, typer.Option(help="User of hosts that name none.", show_default="as ssh has it")]
Port = Annotated[
    int | None, typer.Option(min=1, max=65_535, help="Port of hosts that name none.", show_default="as ssh has it")
]
Jump = Annotated[str | None, typer.Option(metavar="HOST", help="Connect through this host.", show_default=False)]
Parallel = Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Hosts at a time.")]
AcceptNew = Annotated[bool, typer.Option("--accept-new", help="Accept unknown host keys without checking them.")]
Folder = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Folder on the hosts for everything that is installed.",
        show_default="as before, ~/.local/share/rankzero-node",
    ),
]


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
    folder: Folder = None,
    python: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Python on the hosts for runs that name none.", show_default=False),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Maximum CPU ranks on each.", show_default="GPUs, or CPU cores")
    ] = None,
    run_as: Annotated[
        list[str] | None,
        typer.Option(
            "--run-as",
            metavar="[PERSON=]ACCOUNT",
            help="Account there for trainings, of a person or everybody else; repeatable.",
            show_default="the worker's own",
        ),
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Install a worker on other machines over `ssh`, without root, and let them join. Repeat it to change options."""
    from cli.commands.installation.programs import accounts
    from cli.fleet import installing
    from cli.fleet.fleet import Fleet
    from cli.fleet.host_list import Machine
    from cli.fleet.memory import Memory

    options = {"python": python, "slots": slots, "run_as": [*accounts(run_as).entries]}
    memory, listed = Memory.of_person(), named_hosts(hosts or [], from_file, user, port)
    machines = [Machine(host, jump, folder or memory.folder_of(host)) for host in listed]
    server = server_at(data)
    fleet = Fleet(server, as_json, parallel, accept_new)
    with join_token(server, len(machines), parallel) as (token, urls), planned(server, token, urls, options) as plan:
        outcomes = asyncio.run(
            fleet.work_on(machines, "add", "joined", lambda link, state: installing.add(link, plan, state))
        )
    joined = [host for host in outcomes if host.state == "joined"]
    with suppress(OSError):  # then the nodes are reached by their names
        memory.remember({host.node_id: (str(host.node), host.machine) for host in joined if host.node_id})
    if joined:
        check_joined(server, joined, as_json)
    finish(outcomes, as_json, [host.document() for host in outcomes])


def check_joined(server: ServerClient, hosts: Sequence[HostProgress], as_json: bool) -> None:
    """Run a preflight of the hosts that have joined; one that cannot be had leaves them joined."""
    try:
        check = checked(server, [str(host.node) for host in hosts])
    except CommandFailed as failure:
        warn(f"The hosts have joined, but their preflight has not ended: {failure}")
        return
    note_red_cells(hosts, check)
    if not as_json:
        print_matrix(check)


def note_red_cells(hosts: Sequence[HostProgress], check: Mapping[str, Any]) -> None:
    """Add to each host's message what a preflight found wrong on its node."""
    for host in hosts:
        cells = [cell for cell in check["cells"] if cell["state"] == "failed" and cell["node"] == host.node]
        if cells:
            host.message += f"; preflight is red: {', '.join(dict.fromkeys(cell['row'] for cell in cells))}"


def upgrade(
    nodes: Annotated[
        list[str] | None, typer.Argument(metavar="NODE", help="Names or ids.", show_default="all added from here")
    ] = None,
    parallel: Parallel = 8,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Bring nodes that `nodes add` installed to this version of Rankzero; their trainings continue."""
    from cli.fleet import installing
    from cli.fleet.fleet import Fleet
    from cli.fleet.memory import Memory

    server = server_at(data)
    memory, listed = Memory.of_person(), server.get("/api/nodes")
    selected_nodes = nodes_to_upgrade(listed, nodes or [], memory.all())
    machines = [memory.of(node["id"], node["name"]) for node in selected_nodes]
    fleet = Fleet(server, as_json, parallel)
    with planned(server) as plan:
        work = fleet.work_on(machines, "upgrade", "upgraded", lambda link, state: installing.add(link, plan, state))
        outcomes = asyncio.run(work)
    now = {node["id"]: node for node in server.get("/api/nodes")}
    results = [
        now.get(node["id"], node) | {"upgrade_result": host.document()}
        for node, host in zip(selected_nodes, outcomes, strict=True)
    ]
    finish(outcomes, as_json, results)


def nodes_to_upgrade(
    listed: list[dict[str, Any]], names: Sequence[str], added_ids: Container[str]
) -> list[dict[str, Any]]:
    """Return the nodes named, or all those added from this machine. Raises CommandFailed where there is none."""
    nodes = [one_of(listed, name) for name in names] or [node for node in listed if node["id"] in added_ids]
    if not nodes:
        raise CommandFailed("No node of this dashboard was added from here: name those to upgrade.", 2)
    return nodes


def doctor(node: NodeName, data: Data = None, as_json: Json = False) -> None:
    """Examine a node over `ssh`: its folder, version and worker, and whether it reaches the dashboard."""
    from cli.fleet.fleet import Fleet
    from cli.fleet.installing import DoctorCheck, examine
    from cli.fleet.memory import Memory
    from cli.fleet.own_wheel import own_version

    server = server_at(data)
    node_document = one_of(server.get("/api/nodes"), node)
    state = node_document["state"]
    checks = [DoctorCheck("cluster", state == "alive", f"to the dashboard it is {state_label(state)}")]

    async def work(link: Connection, _: HostProgress) -> str:
        checks.extend(await examine(link, version))
        return ""

    version, machine = own_version(), Memory.of_person().of(node_document["id"], node_document["name"])
    (host,) = asyncio.run(Fleet(server, as_json).work_on([machine], None, "examined", work))
    checks += [DoctorCheck("ssh", False, host.message)] if host.message else []
    if as_json:
        print_json(node_document | {"checks": [vars(check) for check in checks]})
    else:
        print_table(("check", "", "result"), [(c.check, "ok" if c.ok else "RED", c.message) for c in checks])
    exit_if_red(checks)


def exit_if_red(checks: Iterable[DoctorCheck]) -> None:
    """End the command where something is wrong with the node. Raises typer.Exit with code 1."""
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def remove(
    node: NodeName,
    uninstall: Annotated[
        bool, typer.Option("--uninstall", help="Also uninstall, over `ssh`, what `nodes add` installed.")
    ] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Remove a node from the cluster: its worker ends, its past runs stay readable."""
    server = server_at(data)
    path = f"/api/nodes/{quote(node, safe='')}"
    if not uninstall:
        removed = server.delete(path)
        sentence = f"Node {removed['name']} is removed; its worker ends, and its token is no longer valid."
        print_outcome(removed, as_json, sentence)
        return
    from cli.fleet.fleet import Fleet
    from cli.fleet.installing import uninstall as take_off
    from cli.fleet.memory import Memory

    memory = Memory.of_person()
    matching = [one for one in server.get("/api/nodes") if node in (one["name"], one["id"])]
    node_document = matching[0] if matching else {"id": memory.id_of(node), "name": node}

    async def work(link: Connection, state: HostProgress) -> str:
        state.node = node_document["name"]
        if matching:
            await asyncio.to_thread(server.delete, path)
        return await take_off(link, state)

    machine = memory.of(node_document["id"], node_document["name"])
    (host,) = outcomes = asyncio.run(Fleet(server, as_json).work_on([machine], "remove", "removed", work))
    if host.state == "removed":
        with suppress(OSError):
            memory.forget(node_document["id"])
    finish(outcomes, as_json, node_document | {"uninstall_result": host.document()})


def one_of(nodes: list[dict[str, Any]], name_or_id: str) -> dict[str, Any]:
    """Return the node with this name or id. Raises CommandFailed."""
    for node in nodes:
        if name_or_id in (node["name"], node["id"]):
            return node
    raise CommandFailed(f"There is no node {name_or_id!r}; `rankzero nodes` lists them.")


def named_hosts(words: list[str], from_file: Path | None, user: str | None, port: int | None) -> list[Destination]:
    """Return the hosts of a command line. Raises CommandFailed where there are none."""
    from cli.fleet.host_list import hosts_of, words_in

    if from_file is not None:
        try:
            words = words + words_in(sys.stdin.read() if str(from_file) == "-" else from_file.read_text())
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CommandFailed(f"{from_file} cannot be read: {reason}.", 2) from None
    config = ""
    with suppress(OSError):
        config = (Path.home() / ".ssh/config").read_text(errors="replace")
    hosts = hosts_of(words, user, port, config)
    if not hosts:
        raise CommandFailed("Name the hosts: `rankzero nodes add 'gpu-[1-8]' me@10.0.0.4`, or --from FILE.", 2)
    return hosts


@contextmanager
def join_token(server: ServerClient, hosts: int, parallel: int) -> Iterator[tuple[str, list[str]]]:
    """Make a join token for so many hosts, which ends with the command; yields it and the dashboard's addresses.

    Raises CommandFailed where no other machine can reach the dashboard."""
    ttl_s, most_uses = TOKEN_TTL_S * ceil(hosts / parallel), USES_PER_HOST * hosts
    body = {"ttl_s": ttl_s, "most_uses": most_uses, "name": "rankzero nodes add"}
    token = server.post("/api/join-tokens", body)
    try:
        if token["warning"]:
            raise CommandFailed(f"{token['warning']} Nothing has been installed.")
        yield token["token"], [token["url"], *(other_addresses(server) if server.address.is_local else [])]
    finally:
        with suppress(CommandFailed):
            server.delete(f"/api/join-tokens/{token['id']}")


def other_addresses(server: ServerClient) -> list[str]:
    """Return at which addresses a node may also reach the dashboard on this machine: that from which `ssh` connects
    it, and those of every network card."""
    import psutil

    from dashboard.cluster.joining import is_loopback

    at = urlsplit(server.address.url)
    port = at.port or {"http": 80, "https": 443}[at.scheme]
    card_addresses = [
        entry.address for card in psutil.net_if_addrs().values() for entry in card if entry.family == AF_INET
    ]
    hosts = [host for host in ("ssh", *card_addresses) if not is_loopback(host)]
    return [f"{at.scheme}://{host}:{port}" for host in hosts[:MOST_ADDRESSES]]


@contextmanager
def planned(
    server: ServerClient, token: str = "", urls: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> Iterator[InstallationPlan]:
    """Prepare what the hosts are brought. Raises CommandFailed."""
    from platformdirs import user_cache_path

    from cli.fleet.installing import InstallationPlan
    from cli.fleet.node_files import NodeFiles

    listed = server.get("/api/nodes")
    nodes = {node["id"]: node["state"] == "alive" for node in listed}
    names = [node["name"] for node in listed if node["state"] == "alive"]
    chosen_options = {name: value for name, value in (options or {}).items() if value is not None}
    certificates = certificates_of_this_command()
    with tempfile.TemporaryDirectory(prefix="rankzero-") as work:
        files = NodeFiles(user_cache_path("rankzero", appauthor=False) / "fleet", Path(work))
        yield InstallationPlan(files, urls, nodes, names, token, chosen_options, certificates)


def certificates_of_this_command() -> str:
    """Return the certificates in RANKZERO_CA_FILE, which the nodes are to trust as this command does; else nothing.

    Raises CommandFailed."""
    from domain.network.trust import CannotTrust, trusted_certificates

    try:
        return trusted_certificates()
    except CannotTrust as error:
        raise CommandFailed(str(error)) from None


def finish(outcomes: Sequence[HostProgress], as_json: bool, document: Any) -> None:
    """Print the outcome. Raises typer.Exit with code 1 if a host has failed."""
    if as_json:
        print_json(document)
    else:
        print_list(HOSTS, outcomes)
    if any(host.state == "failed" for host in outcomes):
        raise typer.Exit(1)
