"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.server.client import ServerClient, find_server
from cli.terminal.errors import CommandFailed
from domain.choices import RUN_ID


def complete_run(incomplete: str) -> list[tuple[str, str]]:
    """Return run ids that complete the word in the shell, each with name and state."""
    try:
        runs = ServerClient(find_server(None)).get("/api/runs", limit=100)
    except CommandFailed:
        return []
    return [(run["id"], f"{run['name']}, {run['state']}") for run in runs if run["id"].startswith(incomplete)]


def complete_filter(incomplete: str) -> list[str]:
    """Return searches that go on after the last word of this one."""
    try:
        path, search = "/api/search/completions", incomplete[:500]
        completion = ServerClient(find_server(None)).get(path, filter=search)
    except CommandFailed:
        return []
    return [search[: completion["start"]] + proposal["text"] for proposal in completion["proposals"]]


Data = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Data directory of the server on this machine.", show_default="the user's own"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id.", autocompletion=complete_run, show_default=False)
]


def server_at(data: Path | None) -> ServerClient:
    """Connect to the dashboard of this data directory. Raises CommandFailed where none runs."""
    return ServerClient(find_server(data))


def run_path(run_id: str, *segments: str) -> str:
    """Return the API's path of a run. Raises CommandFailed for an id that no run can have."""
    if not RUN_ID.fullmatch(run_id):
        raise CommandFailed(f"There is no run {run_id!r}; `rankzero runs` lists them.")
    return "/".join(["/api/runs", run_id, *segments])
