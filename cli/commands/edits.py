"""`rankzero tag, note, archive, baseline`: change how runs are described, listed and compared."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.commands.runs import ChosenRuns, Filter, chosen, for_each
from cli.server.options import Data, Json, RunId, complete_run, id_of_run, run_path, server_at
from cli.terminal import CommandFailed, print_json, print_outcome, say
from domain.spec import check_tag
from domain.text.formats import plural

RunsAndChanges = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN… [+TAG] [-TAG]…",
        help="Runs, and the tags to add and to remove.",
        autocompletion=complete_run,
        show_default=False,
    ),
]


def tag(
    context: typer.Context,
    runs: RunsAndChanges = None,
    search: Filter = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Add tags to runs (+TAG) or remove them (-TAG); without changes, show their tags."""
    server, words = server_at(data), runs or []
    changes = [text for text in words if text[:1] in ("+", "-")]
    edit = _tag_edit(changes)
    ids = chosen(context, server, _named([text for text in words if text not in changes], context), search)

    def act(run_id: str) -> dict[str, Any]:
        path = run_path(run_id)
        return dict(server.patch(path, edit) if changes else server.get(path))

    for_each(ids, act, lambda run: f"Tags of run {run['id']}: {', '.join(run['tags']) or 'none'}.", as_json)


def _named(words: list[str], context: typer.Context) -> list[str]:
    """Return the words that name runs. Raises CommandFailed for one that must be a tag without its sign."""
    for text in words[1:]:
        try:
            id_of_run(context, text)
        except CommandFailed as refusal:
            raise CommandFailed(f"{refusal} Write +{text} to add the tag, -{text} to remove it.", 2) from None
    return words


def note(
    run: RunId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Plain text; empty removes the note.")],
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Describe a run in plain text."""
    edited = server_at(data).patch(run_path(run), {"note": text})
    outcome = "has this note now" if edited["note"] else "has no note now"
    print_outcome(edited, as_json, f"Run {run} {outcome}.")


def archive(
    context: typer.Context,
    runs: ChosenRuns = None,
    search: Filter = None,
    undo: Annotated[bool, typer.Option("--undo", help="List them again.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Leave runs out of lists; `rankzero runs --filter archived:yes` lists them."""
    server = server_at(data)
    ids = chosen(context, server, runs, search)
    edited = [server.patch(run_path(run), {"archived": not undo}) for run in ids]
    if as_json:
        print_json(edited)
    else:
        say(f"{plural(len(edited), 'run')} {'listed again' if undo else 'archived'}.")


def baseline(
    run: RunId,
    clear: Annotated[bool, typer.Option("--clear", help="Leave its project without a baseline.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Compare the runs of a project with this one from now on."""
    edited = server_at(data).patch(run_path(run), {"baseline": not clear})
    outcome = "is no baseline now" if clear else f"is the baseline of project {edited['project']} now"
    print_outcome(edited, as_json, f"Run {run} {outcome}.")


def _tag_edit(changes: list[str]) -> dict[str, list[str]]:
    """The edit that adds and removes these tags. Raises CommandFailed."""
    for change in changes:
        try:
            check_tag(change[1:])
        except ValueError as error:
            raise CommandFailed(f"{change}: {error}.", 2) from None
    signs = {"add_tags": "+", "remove_tags": "-"}
    return {field: [c[1:] for c in changes if c.startswith(sign)] for field, sign in signs.items()}
