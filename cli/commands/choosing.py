"""The runs that a command acts on: named one by one, or all that a search finds; and the question before it acts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from cli.server.client import ServerClient
from cli.server.options import complete_filter, complete_run, ids_of_runs, run_path
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, printable, say, warn
from domain.text.formats import plural

PAGE = 1000
"""Runs that are asked for at once."""
NAMED_IN_QUESTION = 5
ChosenRuns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN…",
        help="Ids or their beginnings, names, or `latest`.",
        autocompletion=complete_run,
        show_default=False,
    ),
]
Filter = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="QUERY",
        help="All runs that match, as in `runs --filter`.",
        autocompletion=complete_filter,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def chosen(context: typer.Context, server: ServerClient, words: list[str] | None, search: str | None) -> list[str]:
    """Return the ids of the named runs and of those that match, each once. Raises CommandFailed without any."""
    if not words and not search:
        raise CommandFailed(f"Name a run, or choose some with --filter. `{context.command_path} --help` shows how.", 2)
    ids = ids_of_runs(context, words or [])
    if search:
        ids += matching(server, search)
    if not ids:
        raise CommandFailed("No run matches.")
    return list(dict.fromkeys(ids))


def matching(server: ServerClient, search: str) -> list[str]:
    """Return the ids of all runs that match a search, newest first."""
    ids: list[str] = []
    while True:
        page = server.get("/api/runs", filter=search, limit=PAGE, offset=len(ids))
        ids += [run["id"] for run in page]
        if len(page) < PAGE:
            return ids


def confirm(server: ServerClient, ids: list[str], what: str, yes: bool) -> None:
    """Ask before `what` is done to the runs for good. Raises CommandFailed where nobody can be asked, typer.Abort."""
    if yes:
        return
    if not sys.stdin.isatty():
        subject = f"run {ids[0]}" if len(ids) == 1 else plural(len(ids), "run")
        raise CommandFailed(f"Nothing was done: to {what} {subject} cannot be undone; add --yes to do it.", 2)
    names = [f"{run_id} ({printable(server.get(run_path(run_id))['name'])})" for run_id in ids[:NAMED_IN_QUESTION]]
    more = f" and {len(ids) - len(names)} more" if len(ids) > len(names) else ""
    question = f"{what.capitalize()} {', '.join(names)}{more}, with logs, points and checkpoints?"
    typer.confirm(question, abort=True, err=True)


def for_each(
    ids: list[str], act: Callable[[str], dict[str, Any]], tell: Callable[[dict[str, Any]], str], as_json: bool
) -> None:
    """Do it to each run and say so; one that is refused holds up no other.

    Prints one document, or a list for several. Raises CommandFailed, or Exit(1) after the last of several runs."""
    if len(ids) == 1:
        document = act(ids[0])
        return print_json(document) if as_json else say(tell(document))
    done, failures = list[dict[str, Any]](), 0
    for run_id in ids:
        try:
            done.append(act(run_id))
        except CommandFailed as refusal:
            failures += 1
            warn(str(refusal))
        else:
            if not as_json:
                say(tell(done[-1]))
    if as_json:
        print_json(done)
    if failures:
        raise typer.Exit(1)
