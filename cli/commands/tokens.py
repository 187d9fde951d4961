"""`rankzero token`: print the login token or that of /metrics; make, list and revoke join tokens."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from cli.server.client import data_directory
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, print_json, print_table, say, warn
from dashboard.security.token_files import join_token_path, metrics_token_path
from domain.text import formats

UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def token(
    join: Annotated[bool, typer.Option("--join", help="Print the join token of workers.")] = False,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --join: make a token that is valid for this time (30m, 24h, 7d).",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new token.", show_default=False)] = None,
    list_them: Annotated[bool, typer.Option("--list", help="With --join: list the tokens that were made.")] = False,
    revoke: Annotated[
        str | None, typer.Option(metavar="ID", help="With --join: revoke a token.", show_default=False)
    ] = None,
    metrics: Annotated[bool, typer.Option("--metrics", help="Print the token that only reads /metrics.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Print the login token or with --metrics that of /metrics; with --join, print, make, list or revoke join tokens.

    Raises CommandFailed for options that exclude each other."""
    actions = [expires is not None or name is not None, list_them, revoke is not None]
    if any(actions) and not join:
        raise CommandFailed("--expires, --name, --list and --revoke apply to join tokens: add --join.", 2)
    if sum(actions) > 1:
        raise CommandFailed("--list, --revoke and making a token (--expires, --name) exclude each other.", 2)
    if metrics and join:
        raise CommandFailed("--metrics and --join exclude each other.", 2)
    if list_them:
        show_list(data, as_json)
    elif revoke is not None:
        end(revoke, data, as_json)
    elif any(actions):
        make(expires, name or "", data, as_json)
    else:
        folder = data_directory(data)
        read(join_token_path(folder) if join else metrics_token_path(folder) if metrics else folder / "token", as_json)


def read(path: Path, as_json: bool) -> None:
    """Print the token in one of the server's files. Raises CommandFailed where it cannot be read."""
    try:
        secret = path.read_text().strip()
    except FileNotFoundError:
        raise CommandFailed(f"{path} does not exist: no dashboard has been started on this directory yet.") from None
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}.") from None
    if as_json:
        print_json({"token": secret})
    else:
        say(secret)


def make(expires: str | None, name: str, data: Path | None, as_json: bool) -> None:
    """Print a new join token on stdout, and how to use it on stderr."""
    body = {"name": name} | ({} if expires is None else {"ttl_s": seconds(expires, "--expires")})
    created = server_at(data).post("/api/join-tokens", body)
    if as_json:
        print_json(created)
        return
    say(created["token"])
    left_s = created["expires_at"] - created["created_at"]
    warn(f"Valid for {formats.duration(left_s)}, shown only now. {created['where']}: {created['command']}")
    if created["warning"]:
        warn(created["warning"])


def show_list(data: Path | None, as_json: bool) -> None:
    """List the join tokens, without their secrets."""
    listed = server_at(data).get("/api/join-tokens")
    if as_json:
        print_json(listed)
    elif not listed:
        say("No join token was made. `rankzero token --join --expires 24h` makes one.")
    else:
        print_table(("id", "name", "state", "used", "last"), [row(entry, time.time()) for entry in listed])


def row(entry: dict[str, Any], now: float) -> tuple[object, ...]:
    """Return a token's cells in the table."""
    if entry["revoked_at"] is not None:
        state = f"revoked {formats.ago(entry['revoked_at'], now)}"
    elif now >= entry["expires_at"]:
        state = f"expired {formats.ago(entry['expires_at'], now)}"
    else:
        state = f"valid for {formats.duration(entry['expires_at'] - now)}"
    return entry["id"], entry["name"], state, entry["uses"], formats.ago(entry["last_used_at"], now)


def end(token_id: str, data: Path | None, as_json: bool) -> None:
    """Revoke a join token; nodes that joined with it stay."""
    ended = server_at(data).delete(f"/api/join-tokens/{quote(token_id, safe='')}")
    if as_json:
        print_json(ended)
    else:
        say(f"Token {ended['id']} is revoked. Nodes that joined with it stay.")


def seconds(text: str, option: str) -> float:
    """Parse a duration (90, 30m, 24h, 7d) into seconds. Raises CommandFailed."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip(), re.ASCII)
    if match is None:
        raise CommandFailed(f"{option} must be a time such as 30m, 24h or 7d, got {text!r}.", 2)
    return float(match[1]) * UNITS_S[match[2]]
