"""The `rankzero` command: its subcommands, and one sentence with an exit code for every error."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping, Sequence
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

from cli.commands_on_demand import CommandsOnDemand, name_of
from cli.terminal.errors import CommandFailed
from cli.terminal.printing import warn

GROUPS = {
    "Start": (
        "cli.commands.programs:up",
        "cli.commands.programs:dashboard",
        "cli.commands.worker:worker",
        "cli.commands.worker:gateway",
        "cli.commands.system:doctor",
    ),
    "Train": (
        "cli.commands.launch:launch",
        "cli.commands.studies.sweep:sweep",
        "cli.commands.studies.scale:scale",
        "cli.commands.runs:stop",
        "cli.commands.runs:resume",
    ),
    "Look": (
        "cli.commands.runs:runs",
        "cli.commands.runs:show",
        "cli.commands.output:metrics",
        "cli.commands.output:logs",
        "cli.commands.compare:compare",
        "cli.commands.diff:diff",
    ),
    "Diagnose": (
        "cli.commands.ranks:ranks",
        "cli.commands.performance.collectives:collectives",
        "cli.commands.performance.phases:phases",
        "cli.commands.performance.profile:profile",
        "cli.commands.performance.timeline:timeline",
        "cli.commands.performance.hardware:hardware",
    ),
    "Checkpoints and results": (
        "cli.commands.checkpoints:checkpoints",
        "cli.commands.checkpoints:download",
        "cli.commands.transfer.export:export",
        "cli.commands.transfer.share:share",
        "cli.commands.transfer.importing:import_",
        "cli.commands.transfer.mirroring:mirror",
    ),
    "Keep order": (
        "cli.commands.edits:tag",
        "cli.commands.edits:note",
        "cli.commands.edits:baseline",
        "cli.commands.edits:archive",
        "cli.commands.runs:delete",
        "cli.commands.alerts:alert_app",
    ),
    "Nodes and server": (
        "cli.commands.nodes:nodes_app",
        "cli.commands.nodes:drain",
        "cli.commands.nodes:undrain",
        "cli.commands.preflight:preflight",
        "cli.commands.tokens:token",
        "cli.commands.system:backup",
        "cli.commands.store:migrate_store",
    ),
}
"""In the order of the help: the modules, and in each the function or Typer app of a command."""
COMMANDS = tuple(place for places in GROUPS.values() for place in places)


class Commands(TyperGroup):
    """All commands, each imported when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._on_demand = CommandsOnDemand(COMMANDS)
        self.commands = cast("MutableMapping[str, Any]", self._on_demand)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands in their groups, without importing them."""
        described = self._on_demand.described()
        limit = formatter.width - 6 - max(map(len, described))
        for title, places in GROUPS.items():
            commands = [described[name_of(place)] for place in places]
            with formatter.section(title):
                formatter.write_dl([(str(one.name), one.get_short_help_str(limit)) for one in commands])


app = typer.Typer(
    name="rankzero",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib import metadata

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
            warn(f"The argument {shown!r} is not valid UTF-8, which the dashboard requires: encode it as UTF-8.")
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
