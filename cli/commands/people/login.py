"""`rankzero login, logout, whoami`: let this machine in at a dashboard, in a browser; nothing is pasted."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from cli.durations import Expires, lifetime_s
from cli.server.client import ServerClient, ServerUnreachable, find_server
from cli.server.logins import Logins, plain_url
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, print_outcome, warn
from domain.agents.budget import left
from domain.clients.addresses import Address, address_of
from domain.clients.logins import Login
from domain.people.roles import EVERYWHERE, Role, Scope
from domain.people.tokens import BudgetView

Url = Annotated[
    str | None,
    typer.Argument(metavar="URL", help="A dashboard's address; the last one by default.", show_default=False),
]
WAIT_S = 660.0
"""Somewhat longer than a request lives at the dashboard."""


def login(
    url: Url = None,
    scope: Annotated[
        Scope | None,
        typer.Option(help="What this machine may at most do for you: act if not set.", show_default=False),
    ] = None,
    project: Annotated[str | None, typer.Option(metavar="P", help="Only in this project.", show_default=False)] = None,
    expires: Expires = "90d",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser here.")] = True,
    as_json: Json = False,
) -> None:
    """Log this machine in at a dashboard: a person signed in there allows it, in a browser here or elsewhere.

    Raises CommandFailed."""
    logins, address = Logins(), plain_url(url) if url else _last_address()
    before = logins.at(address)
    if before is not None and scope is None and project is None and (identity := _is_valid(before)) is not None:
        logins.keep(before)
        print_outcome(_identity(identity), as_json, f"You are logged in at {address} as {before.user} already.")
        return
    request = {"name": machine_name(), "scope": scope or Scope.ACT, "project": project, "lasts_s": lifetime_s(expires)}
    fresh = _let_in(ServerClient(Address(address, "")), request, browser)
    _keep_instead(logins, fresh, before)
    identity = ServerClient(address_of(fresh)).get("/api/whoami")
    print_outcome(_identity(identity), as_json, f"Logged in at {address}: {in_words(identity)}")
    if os.environ.get("RANKZERO_URL"):
        warn("RANKZERO_URL is set: commands go to that dashboard until you unset it.")


def _keep_instead(logins: Logins, fresh: Login, before: Login | None) -> None:
    logins.keep(fresh)
    if before is not None:
        with suppress(CommandFailed):  # it ends by itself
            _revoke(before)


def logout(url: Url = None, as_json: Json = False) -> None:
    """Log this machine out: its token is revoked at the dashboard and removed here. Raises CommandFailed."""
    logins = Logins()
    ending = logins.at(plain_url(url)) if url else logins.current()
    if ending is None:
        raise CommandFailed(f"This machine is not logged in{f' at {plain_url(url)}' if url else ''}.")
    identity: dict[str, Any] = {"name": ending.user, "role": None, "projects": {}}
    problem = None
    try:
        identity = _revoke(ending)
    except CommandFailed as error:
        problem = error
    logins.forget(ending.url)
    print_outcome(_identity(identity), as_json, f"Logged out of {ending.url}.")
    if isinstance(problem, ServerUnreachable):
        warn(f"{problem} The token is removed here, and valid there until it is revoked or expires: {ending.name}.")


def whoami(data: Data = None, as_json: Json = False) -> None:
    """Print who you are at the dashboard, and what you and your token may do."""
    server = server_at(data)
    identity = server.get("/api/whoami")
    sentence = f"{in_words(identity)} At {server.address.url}, by {server.address.source}."
    print_outcome(_identity(identity), as_json, sentence)


def in_words(identity: dict[str, Any]) -> str:
    """Say who a person is, and what limits their token."""
    everywhere = "all projects" if identity["role"] == Role.OWNER else EVERYWHERE
    roles = [f"{identity['role']} in {everywhere}"] if identity["role"] else []
    roles += [f"{role} in {project}" for project, role in sorted(identity["projects"].items())]
    sentence = f"{identity['name']}: {', '.join(roles) or 'no role'}."
    if token := identity["token"]:
        where = f" in project {token['project']}" if token["project"] else ""
        sentence += f" The {token['name']} may at most {token['scope']}{where}."
        if budget := token.get("budget"):
            sentence += f" It has {left(BudgetView(**budget))} device-hours left."
    return sentence


def machine_name() -> str:
    """Return this machine's name as a token may be called."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", socket.gethostname()).strip("-._")[:60]
    return name or "machine"


def _last_address() -> str:
    """The address that no argument names. Raises CommandFailed."""
    if url := os.environ.get("RANKZERO_URL"):
        return plain_url(url)
    if (last := Logins().current()) is not None:
        return last.url
    try:
        return plain_url(find_server(None).url)
    except CommandFailed:
        raise CommandFailed("Name the dashboard's address: `rankzero login URL`.", 2) from None


def _is_valid(stored: Login) -> dict[str, Any] | None:
    try:
        identity: dict[str, Any] = ServerClient(address_of(stored)).get("/api/whoami")
        return identity
    except ServerUnreachable:
        raise
    except CommandFailed:
        return None


def _let_in(server: ServerClient, request: dict[str, Any], browser: bool) -> Login:
    """Request a login, and wait until it is answered. Raises CommandFailed."""
    if not server.address.url.startswith("https:") and not server.address.is_local:
        warn("This connection is not encrypted: anyone on the network can read the token. See TLS in the docs.")
    pending = server.post("/api/login-requests", request)
    page = f"{server.address.url}{pending['path']}"
    is_open = browser and has_browser() and webbrowser.open(page)
    warn(f"{'A browser opens' if is_open else 'Open'} {page}")
    warn(f"Sign in there, compare the code {pending['code']}, and press Allow.")
    allowed = _answer(server, pending)
    if allowed.get("doubt"):
        warn(allowed["doubt"])
    ca_file = os.environ.get("RANKZERO_CA_FILE")
    trusted = str(Path(ca_file).expanduser().absolute()) if ca_file else None
    return Login(server.address.url, pending["secret"], allowed["name"], allowed["user"], trusted)


def _answer(server: ServerClient, pending: dict[str, Any]) -> dict[str, Any]:
    question = {"code": pending["code"], "secret": pending["secret"]}
    until = time.monotonic() + WAIT_S
    while True:
        try:
            outcome = server.post("/api/login-requests/outcome", question)
        except ServerUnreachable:  # restarted: the request is in its store
            if time.monotonic() > until:
                raise
            outcome = {"state": "waiting"}
        if outcome["state"] == "allowed":
            allowed: dict[str, Any] = outcome["token"]
            return allowed
        if outcome["state"] != "waiting":
            how = "was refused" if outcome["state"] == "refused" else "was not answered within ten minutes"
            raise CommandFailed(f"The login {how}: nothing was stored.")
        time.sleep(pending["poll_s"])


def has_browser() -> bool:
    """Whether a window can open here; browsers in the terminal would take it over."""
    if "BROWSER" in os.environ or sys.platform == "darwin":
        return True
    return any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY")) and "SSH_CONNECTION" not in os.environ


def _revoke(ending: Login) -> dict[str, Any]:
    """Revoke a login's token by itself; returns whose it was."""
    server = ServerClient(address_of(ending))
    identity: dict[str, Any] = server.get("/api/whoami")
    server.delete(f"/api/tokens/{quote(ending.name, safe='')}")
    return identity


def _identity(identity: dict[str, Any]) -> dict[str, Any]:
    return {key: identity[key] for key in ("name", "role", "projects")}
