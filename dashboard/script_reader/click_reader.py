"""Read options of click commands from their decorators."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from dashboard.script_reader.options import Kind, Option, command_option, declared
from dashboard.script_reader.source import (
    ScriptProgram,
    SourceFile,
    called,
    command_name,
    keywords,
    text,
    type_name,
    value,
)

TYPES = {
    "INT": "int", "FLOAT": "float", "STRING": "str", "BOOL": "bool", "IntRange": "int", "FloatRange": "float",
    "Path": "Path", "File": "Path", "Choice": "str",
}  # fmt: skip


def read(program: ScriptProgram) -> list[Option]:
    """Return the options and arguments of every command, those of a group first."""
    options: list[Option] = []
    for source in program.sources:
        commands = list(_commands(source))
        names = tuple(name for _, name in commands if name)
        if names:
            options.append(command_option(names))
        for function, name in commands:
            options += _decorated(function, source, name)
    return options


def _commands(source: SourceFile) -> Iterator[tuple[ast.FunctionDef, str | None]]:
    """Yield functions with options, each with its command's name if it belongs to a group."""
    functions = [node for node in source.nodes if isinstance(node, ast.FunctionDef)]
    groups = {f.name for f in functions if any(source.dotted(called(d)) == "click.group" for d in f.decorator_list)}
    for function in functions:
        owners = [command_name(decorator, groups) for decorator in function.decorator_list]
        below = next((owner for owner in owners if owner is not None), None)
        if below is not None:
            yield function, below or function.name.removesuffix("_command").replace("_", "-")
        elif any(source.dotted(called(d)).startswith("click.") for d in function.decorator_list):
            yield function, None


def _decorated(function: ast.FunctionDef, source: SourceFile, command: str | None) -> Iterator[Option]:
    for decorator in function.decorator_list:
        if not isinstance(decorator, ast.Call):
            continue
        reader = {"click.option": _option, "click.argument": _argument}.get(source.dotted(decorator.func))
        option = reader(decorator, source.constants, command) if reader else None
        if option is not None:
            yield option


def _option(call: ast.Call, constants: dict[str, Any], command: str | None) -> Option | None:
    names = [name for a in call.args if isinstance(name := value(a, constants), str)]
    ons, offs = declared(names)
    flags = ons or offs
    if not flags:
        return None
    arguments = keywords(call)
    is_switch = (
        bool(offs) or value(arguments.get("is_flag"), constants) is True or value(arguments.get("count"), {}) is True
    )
    default = value(arguments.get("default"), constants)
    if is_switch and default is None:
        default = False
    long = max(flags, key=len)
    bare = next((name for name in names if name.isidentifier()), None)
    return Option(
        flags=tuple(flags),
        name=bare or long.lstrip("-").replace("-", "_").lower(),
        type="bool" if is_switch else _type(arguments.get("type"), default),
        default=default,
        choices=_choices(arguments.get("type"), constants),
        help=text(arguments.get("help"), constants),
        required=value(arguments.get("required"), constants) is True,
        kind="switch" if is_switch else _kind(arguments, constants),
        on=long if is_switch and ons else None,
        off=max(offs, key=len) if offs else None,
        command=command,
    )


def _argument(call: ast.Call, constants: dict[str, Any], command: str | None) -> Option | None:
    name = value(call.args[0], constants) if call.args else None
    if not isinstance(name, str):
        return None
    arguments = keywords(call)
    default, nargs = value(arguments.get("default"), constants), value(arguments.get("nargs"), constants)
    required = value(arguments.get("required"), constants)
    return Option(
        flags=(name,),
        name=name.lower(),
        type=_type(arguments.get("type"), default),
        default=default,
        choices=_choices(arguments.get("type"), constants),
        help=text(arguments.get("help"), constants),
        required=required if isinstance(required, bool) else "default" not in arguments and nargs != -1,
        kind="positionals" if isinstance(nargs, int) and nargs != 1 else "positional",
        command=command,
    )


def _kind(arguments: dict[str, ast.expr], constants: dict[str, Any]) -> Kind:
    if value(arguments.get("multiple"), constants) is True:
        return "repeated"
    nargs = value(arguments.get("nargs"), constants)
    return "values" if isinstance(nargs, int) and nargs > 1 else "value"


def _type(node: ast.expr | None, default: Any) -> str | None:
    function = called(node) if node is not None else None
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return TYPES.get(name) or type_name(node if isinstance(node, ast.Name) else None, default)


def _choices(node: ast.expr | None, constants: dict[str, Any]) -> tuple[Any, ...] | None:
    if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("Choice") or not node.args:
        return None
    choices = value(node.args[0], constants)
    return tuple(choices) if isinstance(choices, list) and None not in choices else None
