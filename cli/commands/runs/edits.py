"""`rankzero tag, note, archive, baseline, delete`: change how runs are described, listed and compared; delete them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.commands.runs.runs import DELETED_PATH, ChosenRuns, Filter, Yes, chosen, confirm, for_each
from cli.server.client import ServerClient
from cli.server.options import Data, Json, RunId, complete_run, id_of_run, run_path, server_at
from cli.terminal import CommandFailed, print_json, print_outcome, say
from domain.spec import check_tag
from domain.text import formats
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
        say(f"{plural(len(edited), 'run')} {'unarchived' if undo else 'archived'}.")


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


# Deleting runs, for now or for good, and bringing them back.

FOR_GOOD = "removes logs, points and checkpoints for good and cannot be undone"
FOR_A_WEEK = "removes logs, points and checkpoints, and can be undone for a week"


def delete(
    context: typer.Context,
    runs: ChosenRuns = None,
    search: Filter = None,
    now: Annotated[bool, typer.Option("--now", help="Free the disk at once, also of deleted runs.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Bring deleted runs back.")] = False,
    yes: Yes = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Delete ended runs with their points, logs and checkpoints; for a week an admin can bring them back."""
    server = server_at(data)
    if undo:
        return _bring_back(server, runs or [], bool(search or now), as_json)
    names = runs or []
    deleted = [name for name in names if now and name in {run["id"] for run in server.get(DELETED_PATH)}]
    others = [name for name in names if name not in deleted]
    ids = chosen(context, server, others, search) if others or search or not deleted else []
    _confirm(server, ids, deleted, now, yes)

    def act(run_id: str) -> dict[str, Any]:
        path = f"{DELETED_PATH}/{run_id}" if run_id in deleted else run_path(run_id)
        return {"id": run_id, **server.delete(f"{path}?now={str(now).lower()}")}

    for_each([*deleted, *ids], act, _sentence, as_json)


def _confirm(server: ServerClient, ids: list[str], deleted: list[str], now: bool, yes: bool) -> None:
    if ids or not yes:
        confirm(server, ids or deleted, "delete", yes, FOR_GOOD if now else FOR_A_WEEK)


def _sentence(run: dict[str, Any]) -> str:
    freed = formats.size(run["freed_bytes"])
    if run["kept_until"] is None:
        return f"Run {run['id']} is deleted for good; {freed} are free."
    until = formats.clock_time(run["kept_until"])
    return (
        f"Run {run['id']} is deleted ({freed}). Can be restored until {until} UTC: "
        f"`rankzero delete --undo {run['id']}`."
    )


def _bring_back(server: ServerClient, names: list[str], is_wrong: bool, as_json: bool) -> None:
    """Restore deleted runs. Raises CommandFailed."""
    if is_wrong or not names:
        rule = "name the deleted runs, without --filter and --now" if is_wrong else "name the deleted runs"
        raise CommandFailed(f"To undo a deletion, {rule}; `rankzero runs --deleted` lists them.", 2)
    deleted = server.get(DELETED_PATH)
    ids = list(dict.fromkeys(_id_of(name, deleted) for name in names))

    def act(run_id: str) -> dict[str, Any]:
        return dict(server.post(run_path(run_id, "restore")))

    for_each(ids, act, lambda run: f"Run {run['id']} ({run['name']}) is back.", as_json)


def _id_of(name: str, deleted: list[dict[str, Any]]) -> str:
    """Return the id of the deleted run that is meant by an id, a name, or an id's beginning. Raises CommandFailed."""
    for meant in (
        [run["id"] for run in deleted if run["id"] == name],
        [run["id"] for run in deleted if run["name"] == name],
        [run["id"] for run in deleted if name and run["id"].startswith(name)],
    ):
        if len(meant) > 1:
            raise CommandFailed(f"{name!r} means several deleted runs: {', '.join(meant[:5])}. Name one by its id.")
        if meant:
            return str(meant[0])
    raise CommandFailed(f"There is no deleted run {name!r}; `rankzero runs --deleted` lists them.")
