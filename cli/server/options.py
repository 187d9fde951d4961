"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.server.client import ServerClient, find_server
from cli.terminal import CommandFailed
from domain.choices import RUN_ID


def complete_run(incomplete: str) -> list[tuple[str, str]]:
    """Return run ids that complete the word in the shell, each with name and state."""
    try:
        runs = ServerClient(find_server(None)).get("/api/runs", limit=100)
    except CommandFailed:
        return []
    by_id = [(run["id"], f"{run['name']}, {run['state']}") for run in runs]
    by_name = [(name, "a name") for name in dict.fromkeys(run["name"] for run in runs)]
    return [entry for entry in [*by_id, *by_name] if entry[0].startswith(incomplete)]


def complete_filter(incomplete: str) -> list[str]:
    """Return searches that continue after the last word of this one."""
    try:
        path, search = "/api/search/completions", incomplete[:500]
        completion = ServerClient(find_server(None)).get(path, filter=search)
    except CommandFailed:
        return []
    return [search[: completion["start"]] + proposal["text"] for proposal in completion["proposals"]]


Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="Data directory of the server on this machine.",
        show_default="the user's own",
        is_eager=True,  # the names of runs are looked up there
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def id_of_run(context: typer.Context, run: str | None) -> str | None:
    """Return the id of the run that a word means: an id, its beginning, a name, or `latest`. Raises CommandFailed."""
    if run is None or context.resilient_parsing:
        return run
    server = server_at(context.params.get("data"))
    return str(server.get("/api/named-runs", name=run)["id"])


def ids_of_runs(context: typer.Context, words: list[str]) -> list[str]:
    """Return the ids of runs, each once, in their order. Raises CommandFailed."""
    return list(dict.fromkeys(str(id_of_run(context, run)) for run in words))


RUN_HELP = "A run's id or its beginning, its name, or `latest`."
RunId = Annotated[
    str,
    typer.Argument(metavar="RUN", help=RUN_HELP, autocompletion=complete_run, show_default=False, callback=id_of_run),
]
RunIds = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN…", help=f"Each {RUN_HELP[2:]}", autocompletion=complete_run, show_default=False,
        callback=ids_of_runs,
    ),
]  # fmt: skip


def server_at(data: Path | None) -> ServerClient:
    """Connect to the dashboard of this data directory. Raises CommandFailed where none runs."""
    return ServerClient(find_server(data))


def run_path(run_id: str, *segments: str) -> str:
    """Return the API's path of a run. Raises CommandFailed for an id that no run can have."""
    if not RUN_ID.fullmatch(run_id):
        raise CommandFailed(f"There is no run {run_id!r}; `rankzero runs` lists them.")
    return "/".join(["/api/runs", run_id, *segments])


def pairs(items: list[str] | None, field: str) -> dict[str, str]:
    """Return NAME=VALUE options as a mapping. Raises CommandFailed for another form."""
    mapping = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise CommandFailed(f"{field}: must be NAME=VALUE, got {item!r}.", 2)
        mapping[key] = value
    return mapping
