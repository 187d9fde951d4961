"""`rankzero share`: read-only links to runs, which end on a date or when they are revoked."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.server.client import ServerClient
from cli.server.options import Data, Json, complete_run, ids_of_runs, server_at
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, print_outcome, print_table, say
from domain.choices import RUN_ID
from domain.text.formats import clock_time

PATH = "/api/shared-links"


def share(
    context: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN…", help="The runs, as for `show`.", autocompletion=complete_run, show_default=False
        ),
    ],
    days: Annotated[int, typer.Option(min=1, max=366, help="Days for which the link is valid.")] = 7,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Make a link that shows runs to anyone who has it: curves, tables and notes, without signing in, until it ends.

    `rankzero share list` lists the links, `rankzero share revoke ID` ends one at once."""
    server = server_at(data)
    match runs:
        case ["list"]:
            _list(server.get(PATH), as_json)
        case ["revoke", *ids]:
            _revoke(server, ids, as_json)
        case _:
            made = server.post(PATH, {"runs": ids_of_runs(context, runs), "days": days})
            print_outcome(made, as_json, made["url"])
            if not as_json:
                say(f"Valid until {clock_time(made['expires_at'])} UTC; shown only now.")


def _list(links: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(links)
    elif not links:
        say("There is no link. `rankzero share RUN` makes one.")
    else:
        print_table(("id", "state", "valid until (UTC)", "runs"), [row(link) for link in links])


def row(link: dict[str, Any]) -> tuple[object, ...]:
    """Return a link's cells."""
    return (link["id"], link["state"], clock_time(link["expires_at"]), " ".join(link["runs"]))


def _revoke(server: ServerClient, ids: list[str], as_json: bool) -> None:
    """End one link. Raises CommandFailed."""
    if len(ids) != 1 or not RUN_ID.fullmatch(ids[0]):
        raise CommandFailed("Name one link: `rankzero share revoke ID`; `rankzero share list` lists them.", 2)
    print_outcome(server.delete(f"{PATH}/{ids[0]}"), as_json, f"Link {ids[0]} is revoked.")
