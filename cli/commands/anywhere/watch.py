"""`rankzero watch`: the help and the checks of what `cli.entry` starts without them."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.entry import run_watch


def watch(
    command: Annotated[list[str], typer.Argument(metavar="CMD", help="The command and its arguments, after --.")],
    name: Annotated[str, typer.Option(help="Name of the run.", show_default="the command's")] = "",
    project: Annotated[str, typer.Option(help="Project of the run.")] = "default",
    run: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="What all processes of one run name, where no scheduler joins them."),
    ] = None,
    look_only: Annotated[
        bool, typer.Option("--look-only", help="Nobody stops the command from the dashboard.")
    ] = False,
    tag: Annotated[list[str] | None, typer.Option(metavar="T", help="Tag of the run; repeatable.")] = None,
) -> None:
    """Run a command in the foreground and watch it as a run. Output, terminal, signals and exit code stay its own."""
    from worker.watched.front import WatchOptions

    run_watch(WatchOptions(command, name, project, tuple(tag or ()), run, look_only))
