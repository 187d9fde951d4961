"""`rankzero token`: make, list and revoke access tokens and join tokens; print the login token or that of /metrics."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from cli.durations import Expires, hours_s, lifetime_s, seconds
from cli.server.options import Data, Json, server_at
from cli.terminal import CommandFailed, print_json, print_list, print_outcome, say, warn, with_person
from dashboard.security.keys.token_files import join_token_path, metrics_token_path
from domain.clients.addresses import data_directory
from domain.lists import people_lists
from domain.people.roles import Scope
from domain.text import formats

ACCESS_TOKENS = "/api/tokens"

token_app = typer.Typer(invoke_without_command=True)


@token_app.callback()
def token(
    context: typer.Context,
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
    """Print the login token; `token create`, `list` and `revoke` are for access tokens, which act for you.

    Raises CommandFailed for options that exclude each other."""
    if context.invoked_subcommand is not None:
        return
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
    print_outcome({"token": secret}, as_json, secret)


def make(expires: str | None, name: str, data: Path | None, as_json: bool) -> None:
    """Print a new join token on stdout, and how to use it on stderr."""
    body = {"name": name} | ({} if expires is None else {"ttl_s": seconds(expires, "--expires")})
    created = server_at(data).post("/api/join-tokens", body)
    if as_json:
        print_json(created)
        return
    say(created["token"])
    left_s = created["expires_at"] - created["created_at"]
    warn(f"Valid for {formats.duration(left_s)}: {formats.SHOWN_ONCE}. {created['where']}: {created['command']}")
    if created["warning"]:
        warn(created["warning"])


def show_list(data: Path | None, as_json: bool) -> None:
    """List the join tokens, without their secrets."""
    listed = server_at(data).get("/api/join-tokens")
    none = "No join token was made. `rankzero token --join --expires 24h` makes one."
    print_list(with_person(people_lists.join_tokens(time.time()), listed), listed, as_json, none)


def end(token_id: str, data: Path | None, as_json: bool) -> None:
    """Revoke a join token; nodes that joined with it stay."""
    ended = server_at(data).delete(f"/api/join-tokens/{quote(token_id, safe='')}")
    print_outcome(ended, as_json, f"Token {ended['id']} is revoked. Nodes that joined with it stay.")


# Access tokens, with which scripts act for a person.


def complete_token(incomplete: str) -> list[str]:
    """Return names of own access tokens that complete the word in the shell."""
    try:
        listed = server_at(None).get(ACCESS_TOKENS)
    except CommandFailed:
        return []
    return [one["name"] for one in listed if one["name"].startswith(incomplete)]


TokenName = Annotated[
    str, typer.Argument(metavar="NAME", help="A token's name.", autocompletion=complete_token, show_default=False)
]


@token_app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.", show_default=False)],
    scope: Annotated[Scope, typer.Option(help="The most it may be used for.", show_default=False)],
    project: Annotated[str | None, typer.Option(metavar="P", help="Only in this project.", show_default=False)] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="H", help="Device-hours that its runs may take: 20h.", show_default=False)
    ] = None,
    devices: Annotated[
        int | None, typer.Option(metavar="N", help="With --budget: at most so many at a time.", show_default=False)
    ] = None,
    longest: Annotated[
        str | None, typer.Option(metavar="H", help="With --budget: the longest that a run trains.", show_default=False)
    ] = None,
    expires: Expires = "90d",
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Make an access token for scripts and CI, which acts for you; it is shown only once.

    Raises CommandFailed."""
    lasts_s = lifetime_s(expires)
    if budget is None and (devices is not None or longest is not None):
        raise CommandFailed("--devices and --longest bound what a token with a budget launches: add --budget.", 2)
    body = {"name": name, "scope": scope, "project": project, "lasts_s": lasts_s}
    body |= {
        "budget_s": hours_s(budget, "--budget"),
        "most_devices": devices,
        "longest_s": hours_s(longest, "--longest"),
    }
    server = server_at(data)
    created = server.post(ACCESS_TOKENS, body)
    _show_created(created, lasts_s, server.address.url, as_json)
    if created.get("doubt"):
        warn(created["doubt"])


def _show_created(created: dict[str, Any], lasts_s: float | None, url: str, as_json: bool) -> None:
    if as_json:
        print_json(created)
        return
    say(created["token"])
    end = "without end" if lasts_s is None else f"until {formats.clock_minute(created['expires_at'])}"
    warn(f"Valid {end}: {formats.SHOWN_ONCE}. Use it with RANKZERO_URL={url} and RANKZERO_TOKEN.")


@token_app.command("list")
def list_(
    everybody: Annotated[bool, typer.Option("--all", help="Everyone's tokens, for admins.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """List your access tokens, without their secrets."""
    listed = server_at(data).get(ACCESS_TOKENS, all=everybody or None)
    none = "There is no access token. `rankzero token create NAME --scope read` makes one."
    print_list(people_lists.access_tokens(time.time()), listed, as_json, none)


@token_app.command("revoke")
def revoke_(
    name: TokenName,
    user: Annotated[str | None, typer.Option(help="The token's person, for admins.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Revoke an access token at once. Raises CommandFailed."""
    if user is not None and not yes:
        if not sys.stdin.isatty():
            rule = f"revoking a token of {user} cannot be undone; add --yes to do it."
            raise CommandFailed(f"Nothing was done: {rule}", 2)
        typer.confirm(f"Revoke the token {name} of {user}? Requests with it fail from then on.", abort=True, err=True)
    query = f"?{urlencode({'user': user})}" if user is not None else ""
    revoked = server_at(data).delete(f"{ACCESS_TOKENS}/{quote(name, safe='')}{query}")
    print_outcome(revoked, as_json, f"Token {name} is revoked: it no longer works.")
