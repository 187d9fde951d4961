"""The `rankzero` command: its subcommands, and one sentence with an exit code for every error."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

import typer

from cli.commands import (
    checkpoints,
    diff,
    launch,
    nodes,
    output,
    preflight,
    programs,
    ranks,
    runs,
    store,
    system,
    tokens,
    worker,
)
from cli.commands.performance import collectives, hardware, timeline
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import warn

app = typer.Typer(
    name="rankzero",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(nodes.nodes_app, name="nodes")
for _command in (
    programs.up,
    programs.dashboard,
    worker.worker,
    worker.gateway,
    launch.launch,
    runs.runs,
    runs.show,
    diff.diff,
    ranks.ranks,
    collectives.collectives,
    timeline.timeline,
    hardware.hardware,
    output.metrics,
    output.logs,
    checkpoints.checkpoints,
    checkpoints.download,
    runs.stop,
    runs.resume,
    runs.delete,
    nodes.drain,
    nodes.undrain,
    tokens.token,
    preflight.preflight,
    system.backup,
    store.migrate_store,
    system.doctor,
):
    # What a function raises is for those who read the code, not for the help.
    app.command(help=str(inspect.getdoc(_command)).partition("\n\nRaises ")[0])(_command)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"rankzero {metadata.version('rankzero')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Launch and monitor PyTorch DDP runs in the browser or from the command line."""


def main() -> None:
    """Run the console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        result = app(list(arguments), prog_name="rankzero", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CommandFailed as error:
        warn(str(error))
        return error.exit_code
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `rankzero logs RUN | head`: the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except typer.TyperException as error:
        return report_wrong_usage(error)
    except UnicodeEncodeError:
        return report_undecodable(arguments)


def report_undecodable(arguments: Sequence[str]) -> int:
    """Report the argument that is not UTF-8. Raises the current error again where every argument is."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(argument)[:60]
            warn(
                f"The argument {shown!r} is not valid UTF-8, which the dashboard requires: encode it as UTF-8."
            )
            return 2
    raise


def report_wrong_usage(error: typer.TyperException) -> int:
    """Print what is wrong with the command line, or the list of commands where there are no arguments."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(str(error), file=sys.stderr)
        return 2
    context = getattr(error, "ctx", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    sentence = message.strip() + ("" if message.strip().endswith((".", "?", "!")) else ".")
    command = context.command_path if context is not None else "rankzero"
    warn(f"{sentence} `{command} --help` shows its usage.")
    return 2


if __name__ == "__main__":
    main()
