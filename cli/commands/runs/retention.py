"""`rankzero retention show, set, empty`: the rule by which a project or run keeps its checkpoints."""

from __future__ import annotations

import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from cli.commands.runs.runs import Yes
from cli.server.options import RUN_HELP, Data, Json, complete_run, id_of_run, run_path, server_at
from cli.terminal import CommandFailed, ask_or_tell, print_json, print_outcome, print_table, printable, say
from domain.checkpoint_use.retention import EXAMPLE
from domain.text import formats

retention_app = typer.Typer(no_args_is_help=True)
Project = Annotated[str | None, typer.Option("--project", metavar="P", help="A project.", show_default="default")]
Run = Annotated[
    str | None,
    typer.Option("--run", metavar="RUN", help=RUN_HELP, autocompletion=complete_run, callback=id_of_run),
]


@retention_app.callback()
def retention() -> None:
    """Show and set which checkpoints a project or run keeps."""


@retention_app.command()
def show(project: Project = None, run: Run = None, data: Data = None, as_json: Json = False) -> None:
    """Show the rule of a project, or that of a run with what it keeps, and why."""
    answer = server_at(data).get(_path(project, run))
    if as_json:
        return print_json(answer)
    say(f"{_subject(project, run)}: {printable(answer['rule'])}{_set_by(answer)}")
    if run is not None and answer["checkpoints"]:
        rows = [_row(one) for one in answer["checkpoints"]]
        print_table(["name", "step", "size", "kept because"], rows, frozenset({1, 2}))


@retention_app.command("set")
def set_(
    rule: Annotated[
        str | None, typer.Argument(metavar="RULE", help=f"{EXAMPLE}; or: keep all.", show_default=False)
    ] = None,
    project: Project = None,
    run: Run = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the rule.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would delete.")] = False,
    yes: Yes = False,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Set the rule of a project's runs, or of one run; says first what it deletes. Raises CommandFailed."""
    if (rule is None) is not clear:
        raise CommandFailed(f"Give a rule, such as {EXAMPLE!r}, or --clear.", 2)
    server, path = server_at(data), _path(project, run)
    planned = server.put(path, {"rule": rule, "dry_run": True})
    if not dry_run and planned["freed_bytes"]:
        ask_or_tell(f"This rule {planned['sentence']}.", yes)
    answer = planned if dry_run else server.put(path, {"rule": rule})
    print_outcome(answer, as_json, _outcome(project, run, answer, dry_run))


@retention_app.command()
def empty(yes: Yes = False, data: Data = None, as_json: Json = False) -> None:
    """Erase all deleted checkpoints at once, which frees the disk and cannot be undone; for admins.

    Raises CommandFailed without a terminal and --yes."""
    server = server_at(data)
    if not yes and not sys.stdin.isatty():
        raise CommandFailed("Nothing was done: to erase deleted checkpoints cannot be undone; add --yes to do it.", 2)
    ask_or_tell("This erases all deleted checkpoints for good.", yes)
    answer = server.delete("/api/deleted-checkpoints")
    print_outcome(answer, as_json, f"{formats.size(answer['freed_bytes'])} are free.")


def _path(project: str | None, run: str | None) -> str:
    """Return the API's path of a rule. Raises CommandFailed where both are named."""
    if project is not None and run is not None:
        raise CommandFailed("Name a project or a run, not both.", 2)
    return run_path(run, "retention") if run else f"/api/projects/{quote(project or 'default', safe='')}/retention"


def _subject(project: str | None, run: str | None) -> str:
    return f"Run {run}" if run else f"Project {printable(project or 'default')}"


def _set_by(answer: dict[str, Any]) -> str:
    if answer["of"] is None:
        return " (no rule is set)"
    by = f", set by {printable(answer['set_by'])}" if answer["set_by"] else ""
    return f" (the rule of the {answer['of']}{by})"


def _row(one: dict[str, Any]) -> list[str]:
    return [one["name"], formats.count(one["step"]), formats.size(one["size_bytes"]), one["kept"] or "it goes"]


def _outcome(project: str | None, run: str | None, answer: dict[str, Any], is_dry_run: bool) -> str:
    outcome = answer["sentence"]
    if is_dry_run:
        return f"It {outcome}." if not outcome.startswith("frees ") else f"It would free {outcome[6:]}."
    return f"{_subject(project, run)} keeps: {printable(answer['rule'])}. This {outcome}."
