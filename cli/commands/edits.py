"""`rankzero tag, note, archive, baseline`: change how runs are described, listed and compared."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.server.options import Data, Json, RunId, complete_run, run_path, server_at
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import print_json, print_outcome, say
from domain.run_edit import check_tag
from domain.text.formats import plural

Changes = Annotated[
    list[str] | None,
    typer.Argument(metavar="[+TAG] [-TAG]…", help="Tags to add and to remove.", show_default=False),
]
Runs = Annotated[
    list[str],
    typer.Argument(metavar="RUN…", help="Ids of runs.", autocompletion=complete_run, show_default=False),
]


def tag(run: RunId, changes: Changes = None, data: Data = None, as_json: Json = False) -> None:
    """Add tags to a run (+TAG) or remove them (-TAG); without changes, show its tags."""
    server, path = server_at(data), run_path(run)
    edited: dict[str, Any] = server.patch(path, _tag_edit(changes)) if changes else server.get(path)
    tags = ", ".join(edited["tags"]) or "none"
    print_outcome(edited, as_json, f"Tags of run {run}: {tags}.")


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
    runs: Runs,
    undo: Annotated[bool, typer.Option("--undo", help="List them again.")] = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Leave runs out of lists; `rankzero runs --filter archived:yes` lists them."""
    server = server_at(data)
    edited = [server.patch(path, {"archived": not undo}) for path in [run_path(run) for run in runs]]
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
        if change[:1] not in ("+", "-"):
            raise CommandFailed(f"Write +{change} to add the tag, -{change} to remove it.", 2)
        try:
            check_tag(change[1:])
        except ValueError as error:
            raise CommandFailed(f"{change}: {error}.", 2) from None
    signs = {"add_tags": "+", "remove_tags": "-"}
    return {field: [c[1:] for c in changes if c.startswith(sign)] for field, sign in signs.items()}
