"""The `rankzero` command: its subcommands, and one sentence with an exit code for every error."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from cli.terminal import CommandFailed, warn

GROUPS = {
    "Start": (
        "cli.commands.installation.programs:up",
        "cli.commands.installation.programs:dashboard",
        "cli.commands.installation.worker:worker",
        "cli.commands.installation.worker:gateway",
        "cli.commands.installation.system:doctor",
    ),
    "Train": (
        "cli.commands.runs.launch:launch",
        "cli.commands.runs.freezing:freeze",
        "cli.commands.runs.studies:sweep",
        "cli.commands.runs.studies:scale",
        "cli.commands.runs.runs:stop",
        "cli.commands.runs.runs:resume",
    ),
    "Anywhere": (
        "cli.commands.anywhere.watch:watch",
        "cli.commands.anywhere.sync:sync",
        "cli.commands.anywhere.wait:wait",
        "cli.commands.anywhere.mcp:mcp",
        "cli.commands.anywhere.skill:skill",
    ),
    "Look": (
        "cli.commands.runs.runs:runs",
        "cli.commands.runs.runs:show",
        "cli.commands.runs.output:metrics",
        "cli.commands.runs.output:logs",
        "cli.commands.runs.compare:compare",
        "cli.commands.runs.compare:diff",
    ),
    "Diagnose": (
        "cli.commands.runs.performance:ranks",
        "cli.commands.runs.performance:collectives",
        "cli.commands.runs.performance:phases",
        "cli.commands.runs.performance:profile",
        "cli.commands.runs.performance:timeline",
        "cli.commands.runs.performance:hardware",
    ),
    "Checkpoints and results": (
        "cli.commands.runs.checkpoints:checkpoints",
        "cli.commands.runs.checkpoints:download",
        "cli.commands.runs.checkpoint:checkpoint_app",
        "cli.commands.runs.retention:retention_app",
        "cli.commands.runs.export:export",
        "cli.commands.runs.export:share",
        "cli.commands.runs.importing:import_",
        "cli.commands.runs.mirroring:mirror",
    ),
    "Keep order": (
        "cli.commands.runs.edits:tag",
        "cli.commands.runs.edits:note",
        "cli.commands.runs.edits:baseline",
        "cli.commands.runs.edits:archive",
        "cli.commands.runs.edits:delete",
        "cli.commands.runs.alerts:alert_app",
    ),
    "People": (
        "cli.commands.people.login:login",
        "cli.commands.people.login:logout",
        "cli.commands.people.login:whoami",
        "cli.commands.people.users:users_app",
        "cli.commands.people.tokens:token_app",
        "cli.commands.people.secrets:secret_app",
        "cli.commands.people.audit:audit",
    ),
    "Nodes and server": (
        "cli.commands.installation.nodes:nodes_app",
        "cli.commands.installation.nodes:drain",
        "cli.commands.installation.nodes:undrain",
        "cli.commands.installation.preflight:preflight",
        "cli.commands.installation.backups:backup",
        "cli.commands.installation.backups:restore",
        "cli.commands.installation.system:migrate_store",
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
    words = " ".join(message.replace("Value error, ", "").split())
    sentence = words + ("" if words.endswith((".", "?", "!")) else ".")
    command = context.command_path if context is not None else "rankzero"
    warn(f"{sentence} `{command} --help` shows its usage.")
    return 2


# Commands that are imported when they are called: importing all of them takes longer than most of them run.

WITH_SIGNS = frozenset({"tag"})
"""Commands whose arguments may look like options: `rankzero tag RUN -TAG`."""
WITH_COMMAND = frozenset({"watch"})
"""Commands whose first argument begins another command line: `rankzero watch python train.py --lr 1`."""
_RAISES = re.compile(r"\s+Raises (?:[A-Z]|typer\.)")


class CommandsOnDemand(Mapping[str, TyperCommand | TyperGroup]):
    """Commands by name, from places such as `cli.commands.runs.runs:show`: a module, and a function or Typer app."""

    def __init__(self, places: Sequence[str]) -> None:
        self._places = {name_of(place): place for place in places}
        self._loaded: dict[str, TyperCommand | TyperGroup] = {}

    def __getitem__(self, name: str) -> TyperCommand | TyperGroup:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._places[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def described(self) -> dict[str, TyperCommand]:
        """Return the commands with their help alone, read from the source of their modules."""
        return {name: TyperCommand(name, help=_help(place)) for name, place in self._places.items()}


def name_of(place: str) -> str:
    """Return the name of the command at a place."""
    return place.partition(":")[2].removesuffix("_app").rstrip("_").replace("_", "-")


def _load(name: str, place: str) -> TyperCommand | TyperGroup:
    module, _, attribute = place.partition(":")
    target = getattr(import_module(module), attribute)
    parent = typer.Typer(rich_markup_mode=None)
    if isinstance(target, typer.Typer):
        parent.add_typer(target, name=name)
    else:
        settings = {
            "ignore_unknown_options": name in WITH_SIGNS,
            "allow_interspersed_args": name not in WITH_COMMAND,
        }
        parent.command(name, help=_without_errors(inspect.getdoc(target)), context_settings=settings)(target)
    command: TyperCommand | TyperGroup = typer.main.get_group(parent).commands[name]  # type: ignore[assignment]
    for one in (command, *getattr(command, "commands", {}).values()):
        one.help = _without_errors(one.help)
    return command


class Unconverted:
    """Takes a value that has its parameter's type already as it is: typer would convert it by pydantic, whose import
    takes as long as the rest of a short command."""

    def __init__(self, converter: Callable[[], Any]) -> None:
        self._converter = converter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return what typer would return."""
        is_list = param.multiple or param.nargs == -1
        if value is None or (type(value) is param.type_descriptor.annotation and not is_list):
            return () if value is None and is_list else value
        return self._converter().coerce(value, param=param, ctx=ctx)


def _convert_on_demand(kind: Any) -> None:
    """Let parameters of this kind import pydantic only for values that need it."""
    converter = kind.get_runtime_param
    kind.get_runtime_param = lambda self: Unconverted(lambda: converter(self))


for _kind in (TyperArgument, TyperOption):
    if hasattr(_kind, "get_runtime_param"):  # typer's own, and not promised: without it commands only start slower
        _convert_on_demand(_kind)


def _help(place: str) -> str:
    module, _, attribute = place.partition(":")
    return _without_errors(_docstrings(module)[attribute.removesuffix("_app")])


def _without_errors(docstring: str | None) -> str:
    """Return the help without what is raised, which is for those who read the code."""
    return _RAISES.split(str(docstring), maxsplit=1)[0]


@cache
def _docstrings(module: str) -> dict[str, str | None]:
    """Docstrings of a module's functions by name, without importing it."""
    specification = find_spec(module)
    assert specification is not None and specification.origin is not None
    parsed = ast.parse(Path(specification.origin).read_text(encoding="utf-8"))
    return {part.name: ast.get_docstring(part) for part in parsed.body if isinstance(part, ast.FunctionDef)}


if __name__ == "__main__":
    main()
