"""Read options of argparse and of compatible libraries (configargparse, jsonargparse)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dashboard.script_reader.choices import choices_of, enum_member
from dashboard.script_reader.options import Kind, Option
from dashboard.script_reader.source import (
    PLAIN_TYPES,
    ScriptProgram,
    SourceFile,
    as_written,
    keywords,
    literal,
    text,
    type_name,
    value,
)

SWITCHES = ("store_true", "store_false", "store_const")
SILENT = ("help", "version", "parsers")
FILLED_IN = re.compile(r"%\((\w+)\)[-+ #0-9.]*[a-zA-Z]")


def read(program: ScriptProgram) -> list[Option]:
    """Return the options of every parser in the program, in the order in which they are added."""
    return [option for source in program.sources for option in _Parsers(source, program).options()]


class _Parsers:
    """The parsers of one file, with the subcommand of each variable and the defaults set later."""

    def __init__(self, source: SourceFile, program: ScriptProgram) -> None:
        self._source, self._program = source, program
        self._commands: dict[str, str] = {}
        self._adders: dict[str, str] = {}
        for node in source.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._remember(targets[0], node.value)

    def options(self) -> Iterator[Option]:
        """Yield all options whose name is a literal."""
        defaults = self._later_defaults()
        for call in self._source.calls:
            option = self._subcommand(call) or self._added(call)
            if option is not None and option.name in defaults:
                option = replace(option, default=defaults[option.name], required=False)
            if option is not None:
                yield option

    def _remember(self, target: ast.expr, expression: ast.expr) -> None:
        name = as_written(target)
        # add = parser.add_argument
        if isinstance(expression, ast.Attribute) and expression.attr == "add_argument":
            self._adders[name] = as_written(expression.value)
        if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Attribute):
            owner = as_written(expression.func.value)
            if expression.func.attr == "add_parser" and expression.args:
                self._commands[name] = str(value(expression.args[0], self._source.constants) or "")
            elif expression.func.attr in ("add_argument_group", "add_mutually_exclusive_group"):
                self._commands[name] = self._commands.get(owner, "")

    def _added(self, call: ast.Call) -> Option | None:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            owner = as_written(call.func.value)
        elif isinstance(call.func, ast.Name) and call.func.id in self._adders:
            owner = self._adders[call.func.id]
        else:
            return None
        option = _option(call, self._source, self._program)
        return option and replace(option, command=self._commands.get(owner) or None)

    def _subcommand(self, call: ast.Call) -> Option | None:
        """Return the option that chooses among subparsers."""
        if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_subparsers"):
            return None
        arguments = keywords(call)
        parser_calls = [call for call in self._source.calls if getattr(call.func, "attr", "") == "add_parser"]
        names = [value(call.args[0], self._source.constants) for call in parser_calls if call.args]
        return Option(
            flags=("command",),
            name="command",
            type="str",
            default=None,
            choices=tuple(name for name in names if isinstance(name, str)) or None,
            help=text(arguments.get("help"), self._source.constants) or "The command to run",
            required=value(arguments.get("required"), {}) is True,
            kind="positional",
        )

    def _later_defaults(self) -> dict[str, Any]:
        defaults: dict[str, Any] = {}
        for call in self._source.calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr == "set_defaults":
                arguments = keywords(call)
                values = {name: value(node, self._source.constants) for name, node in arguments.items()}
                defaults |= {name: default for name, default in values.items() if default is not None}
        return defaults


def _option(call: ast.Call, source: SourceFile, program: ScriptProgram) -> Option | None:
    constants = source.constants
    flags = tuple(flag for a in call.args if isinstance(flag := value(a, constants), str) and flag)
    if not flags or len(flags) != len(call.args):
        return None
    arguments = keywords(call)
    type_node = arguments.get("type")
    action, default = _action(arguments.get("action"), constants), value(arguments.get("default"), constants)
    if default is None:
        default = enum_member(arguments.get("default"), type_node, program)
    if as_written(arguments.get("help")).rpartition(".")[2] == "SUPPRESS":  # hidden on purpose
        return None
    if action in SILENT or value(arguments.get("nargs"), {}) == "..." or _is_remainder(arguments.get("nargs")):
        return None
    if action in ("store_true", "store_false") and "default" not in arguments:
        default = action == "store_false"
    choices = choices_of(arguments.get("choices"), type_node, source, program)
    long = next((flag for flag in flags if flag.startswith("--")), flags[0])
    kind = _kind(flags[0], action, arguments, constants)
    type_ = "bool" if kind == "switch" else _type(type_node, default, choices)
    option = Option(
        flags=flags,
        name=str(value(arguments.get("dest"), constants) or long.lstrip("-").replace("-", "_")),
        type=type_,
        default=default,
        choices=choices,
        help=_help(arguments, constants, default),
        required=value(arguments.get("required"), constants) is True
        or _is_required_positional(flags[0], arguments, kind),
        kind=kind,
    )
    return _with_switch(option, action, long, arguments)


def _kind(first: str, action: str, arguments: dict[str, ast.expr], constants: dict[str, Any]) -> Kind:
    nargs = value(arguments.get("nargs"), constants)
    several = nargs in ("*", "+") or (isinstance(nargs, int) and nargs > 0)
    if not first.startswith("-"):
        return "positionals" if several else "positional"
    if action in (*SWITCHES, "BooleanOptionalAction", "count"):
        return "switch"
    if action == "append":
        return "repeated"
    return "values" if several or action == "extend" else "value"


def _with_switch(option: Option, action: str, long: str, arguments: dict[str, ast.expr]) -> Option:
    """Return the option with the arguments that turn it on and off, if it is a switch."""
    if action == "BooleanOptionalAction":
        return replace(option, on=long, off=long.replace("--", "--no-", 1))
    if action == "store_false":
        return replace(option, off=long)
    if option.kind == "switch":
        return replace(option, on=long)
    if isinstance(arguments.get("type"), ast.Name) and ast.unparse(arguments["type"]) == "bool":
        # bool("False") is true: argparse reads any text but the empty one as true.
        return replace(option, kind="switch", on=f"{long}=True", off=f"{long}=")
    return option


def _is_required_positional(first: str, arguments: dict[str, ast.expr], kind: Kind) -> bool:
    return kind in ("positional", "positionals") and value(arguments.get("nargs"), {}) not in ("?", "*")


def _action(node: ast.expr | None, constants: dict[str, Any]) -> str:
    if isinstance(node, ast.Attribute | ast.Name):
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        return str(constants.get(name, name))
    return str(value(node, constants) or "store")


def _is_remainder(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Attribute | ast.Name) and ast.unparse(node).endswith("REMAINDER")


def _type(node: ast.expr | None, default: Any, choices: tuple[Any, ...] | None) -> str | None:
    """Return the type that a person types: a member of an Enum is a text, and what json.loads reads is JSON."""
    if as_written(node).rpartition(".")[2] == "loads":
        return "json"
    name = type_name(node, default)
    return type(choices[0]).__name__ if choices and name not in PLAIN_TYPES else name


def _help(arguments: dict[str, ast.expr], constants: dict[str, Any], default: Any) -> str | None:
    """Return the help text with the parts that argparse fills in: `%(default)s`, `%(metavar)s`."""
    line = text(arguments.get("help"), constants)
    if line is None:
        return None
    texts = {name: as_written(node) or value(node, constants) for name, node in arguments.items()}
    texts["default"] = "…" if default is None and not literal(arguments.get("default"), constants)[0] else default
    line = FILLED_IN.sub(lambda match: str(texts.get(match[1], match[1])), line)
    return line.replace("%%", "%")
