"""`rankzero token`: the login token, and the tokens that workers join with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from cli.server.client import default_data
from cli.server.options import Data, Json, server_at
from cli.terminal.durations import seconds
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, print_table, say, warn
from dashboard.security.token_files import join_token_path
from domain.text import formats


def token(
    join: Annotated[bool, typer.Option("--join", help="The token that workers join with.")] = False,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --join: make a token good for so long (30m, 24h, 7d).",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What the new token is for.", show_default=False)] = None,
    list_them: Annotated[bool, typer.Option("--list", help="With --join: those that were made.")] = False,
    revoke: Annotated[
        str | None, typer.Option(metavar="ID", help="With --join: end one of them.", show_default=False)
    ] = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Print the login token; with --join the token of workers, or make, list and revoke such tokens."""
    asked = [expires is not None or name is not None, list_them, revoke is not None]
    if any(asked) and not join:
        raise CommandFailed("--expires, --name, --list and --revoke are about join tokens: add --join.", 2)
    if sum(asked) > 1:
        raise CommandFailed("--list, --revoke and making a token (--expires, --name) exclude each other.", 2)
    if list_them:
        show_list(data, as_json)
    elif revoke is not None:
        end(revoke, data, as_json)
    elif any(asked):
        make(expires, name or "", data, as_json)
    else:
        folder = data.expanduser().absolute() if data else default_data()
        read(join_token_path(folder) if join else folder / "token", as_json)


def read(path: Path, as_json: bool) -> None:
    """A token of the server's own, from its file."""
    try:
        found = path.read_text().strip()
    except FileNotFoundError:
        raise CommandFailed(f"{path} does not exist: no dashboard was ever started there.") from None
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}.") from None
    if as_json:
        print_json({"token": found})
    else:
        say(found)


def make(expires: str | None, name: str, data: Path | None, as_json: bool) -> None:
    """A new join token on stdout; what to do with it on stderr."""
    body = {"name": name} | ({} if expires is None else {"ttl_s": seconds(expires, "--expires")})
    made = server_at(data).post("/api/join-tokens", body)
    if as_json:
        print_json(made)
        return
    say(made["token"])
    left_s = made["expires_at"] - made["created_at"]
    warn(f"Good for {formats.duration(left_s)}, shown only now. On the new machine: {made['command']}")
    if made["warning"]:
        warn(made["warning"])


def show_list(data: Path | None, as_json: bool) -> None:
    """Join tokens that were made, without their secrets."""
    found = server_at(data).get("/api/join-tokens")
    if as_json:
        print_json(found)
    elif not found:
        say("No join token was made. `rankzero token --join --expires 24h` makes one.")
    else:
        print_table(("id", "name", "state", "used", "last"), [row(each, time.time()) for each in found])


def row(made: dict[str, Any], now: float) -> tuple[object, ...]:
    """A token's cells in the list."""
    if made["revoked_at"] is not None:
        state = f"revoked {formats.ago(made['revoked_at'], now)}"
    elif now >= made["expires_at"]:
        state = f"expired {formats.ago(made['expires_at'], now)}"
    else:
        state = f"good for {formats.duration(made['expires_at'] - now)}"
    return made["id"], made["name"], state, made["uses"], formats.ago(made["last_used_at"], now)


def end(token_id: str, data: Path | None, as_json: bool) -> None:
    """Revoke one; nodes that joined with it stay."""
    ended = server_at(data).delete(f"/api/join-tokens/{quote(token_id, safe='')}")
    if as_json:
        print_json(ended)
    else:
        say(f"Nobody joins with {ended['id']} any more. Nodes that have joined with it stay.")
