"""Read options defined by a function's signature: typer, python-fire, tyro, jsonargparse's CLI."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dashboard.script_reader.choices import enum_values
from dashboard.script_reader.options import Kind, Option, command_option, declared
from dashboard.script_reader.source import (
    ScriptProgram,
    SourceFile,
    command_name,
    keywords,
    parsed_expression,
    text,
    value,
)


def read(program: ScriptProgram) -> list[Option]:
    """Return the options of every command that is a function."""
    options: list[Option] = []
    for source in program.sources:
        commands = list(_typer_commands(source))
        if len(commands) > 1 and (names := tuple(name for _, name in commands)):
            options.append(command_option(names))
        for function, name in commands:
            command = name if len(commands) > 1 else None
            options += filter(None, (_typer(p, source, program, command) for p in parameters(function)))
        options += _called_with_a_function(source, program)
    return options


FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function, or one field of a class."""

    name: str
    annotation: ast.expr | None
    default: ast.expr | None
    help: str | None = None


def parameters(function: FunctionDef) -> list[Parameter]:
    """Return all parameters but self, with the expressions of their defaults."""
    positional = [*function.args.posonlyargs, *function.args.args]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(function.args.defaults))
    pairs = [*zip(positional, [*missing, *function.args.defaults], strict=True)]
    pairs += zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return [Parameter(a.arg, a.annotation, d) for a, d in pairs if a.arg not in ("self", "cls")]


def plain_option(
    parameter: Parameter, source: SourceFile, program: ScriptProgram, style: str, prefix: str = ""
) -> Option:
    """Return the option of a parameter; `style` decides on dashes and on the form of switches."""
    written_default = value(parameter.default, source.constants)
    default = written_default if written_default is not None else enum_default(parameter.default, program)
    type_ = annotation(parameter.annotation, default, program)
    dashed = parameter.name.replace("_", "-") if style == "tyro" else parameter.name
    flag = f"--{prefix}{dashed}"
    option = Option(
        flags=(flag,),
        name=f"{prefix}{parameter.name}".replace("-", "_"),
        type=type_.type,
        default=default,
        choices=type_.choices,
        help=parameter.help,
        required=parameter.default is None,
        kind=_list_kind(type_, style),
    )
    return _as_switch(option, flag, style) if type_.type == "bool" and not type_.is_list else option


def _as_switch(option: Option, flag: str, style: str) -> Option:
    forms = {
        "tyro": (flag, flag.replace("--", "--no-", 1)),
        "hf": (f"{flag}=True", f"{flag}=False"),
        "fire": (f"{flag}=True", f"{flag}=False"),
        "lightning": (f"{flag}=true", f"{flag}=false"),
        "tap": (flag, flag),
    }
    return option.as_switch(*forms[style])


def _list_kind(type_: Annotation, style: str) -> Kind:
    return "values" if type_.is_list and style not in ("fire", "lightning") else "value"


def _typer_commands(source: SourceFile) -> Iterator[tuple[FunctionDef, str]]:
    """Yield the functions that `@app.command()` or `typer.run` turn into commands, with the command's name."""
    apps = {
        target.id
        for node in source.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        for target in node.targets
        if isinstance(target, ast.Name) and source.dotted(node.value.func) == "typer.Typer"
    }
    run = {
        call.args[0].id
        for call in source.calls
        if source.dotted(call.func) == "typer.run" and call.args and isinstance(call.args[0], ast.Name)
    }
    for node in source.nodes:
        if isinstance(node, FunctionDef):
            name_in_decorator = next(
                (name for d in node.decorator_list if (name := command_name(d, apps)) is not None), None
            )
            if name_in_decorator is not None or node.name in run:
                yield node, name_in_decorator or node.name.replace("_", "-")


def _typer(parameter: Parameter, source: SourceFile, program: ScriptProgram, command: str | None) -> Option | None:
    type_ = annotation(parameter.annotation, None, program)
    if type_.type == "Context":
        return None
    maker, is_old_style = _typer_maker(parameter, type_, source)
    declarations = [*maker.args] if maker else []
    default_node = declarations.pop(0) if is_old_style and declarations else None if is_old_style else parameter.default
    if isinstance(default_node, ast.Constant) and default_node.value is ...:
        default_node = None
    written_default = value(default_node, source.constants)
    default = written_default if written_default is not None else enum_default(default_node, program)
    type_ = annotation(parameter.annotation, default, program)
    arguments = keywords(maker) if maker else {}
    is_argument = maker is not None and source.dotted(maker.func) == "typer.Argument"
    is_argument = is_argument or (maker is None and default_node is None)
    flags = [flag for declaration in declarations if isinstance(flag := value(declaration, source.constants), str)]
    return _typer_option(
        parameter.name, flags, type_, default, is_argument, default_node is None,
        text(arguments.get("help"), source.constants), command,
    )  # fmt: skip


def _typer_maker(parameter: Parameter, type_: Annotation, source: SourceFile) -> tuple[ast.Call | None, bool]:
    """Return the call of typer.Option or typer.Argument, and whether it is the parameter's default."""
    for node, is_default in [*((extra, False) for extra in type_.extras), (parameter.default, True)]:
        if isinstance(node, ast.Call) and source.dotted(node.func) in ("typer.Option", "typer.Argument"):
            return node, is_default
    return None, False


def _typer_option(
    name: str, decls: list[str], type_: Annotation, default: Any, is_argument: bool, required: bool,
    help_: str | None, command: str | None,
) -> Option:  # fmt: skip
    if is_argument:
        kind: Kind = "positionals" if type_.is_list else "positional"
        return Option((name,), name, type_.type, default, type_.choices, help_, required, kind, command=command)
    dashed = f"--{name.replace('_', '-')}"
    is_switch = type_.type == "bool" and not type_.is_list
    decls = decls or ([f"{dashed}/{dashed.replace('--', '--no-', 1)}"] if is_switch else [dashed])
    ons, offs = declared(decls)
    long = max(ons, key=len, default=None)
    return Option(
        flags=tuple(ons or [dashed]),
        name=name,
        type=type_.type,
        default=default,
        choices=type_.choices,
        help=help_,
        required=required,
        kind="switch" if is_switch else "repeated" if type_.is_list else "value",
        on=long if is_switch else None,
        off=max(offs, key=len, default=None) if is_switch else None,
        command=command,
    )


def _called_with_a_function(source: SourceFile, program: ScriptProgram) -> Iterator[Option]:
    """Yield the options of `fire.Fire(main)`, `tyro.cli(main)` and `jsonargparse.CLI(main)`."""
    for call in source.calls:
        style = STYLES.get(source.dotted(call.func))
        if style and call.args and isinstance(call.args[0], ast.Name):
            match = program.definition(call.args[0].id)
            if match is not None and isinstance(match[1], FunctionDef):
                options = [plain_option(p, source, program, style) for p in parameters(match[1])]
                yield from map(_by_place, options) if style == "lightning" else options


STYLES = {
    "fire.Fire": "fire", "tyro.cli": "tyro", "jsonargparse.CLI": "lightning", "jsonargparse.auto_cli": "lightning",
    "jsonargparse.auto_parser": "lightning",
}  # fmt: skip
"""How the functions that make a command line of a signature write its options."""


def _by_place(option: Option) -> Option:
    """Return an option of jsonargparse: what has no default is given by its place."""
    return replace(option, flags=(option.name,), kind="positional") if option.required else option


# Read type annotations of options: type, choices, and whether several values are taken.

LISTS = ("list", "List", "Sequence", "tuple", "Tuple", "Iterable", "set", "Set")


@dataclass(frozen=True)
class Annotation:
    """A type as the form needs it."""

    type: str | None = "str"
    choices: tuple[Any, ...] | None = None
    is_list: bool = False
    extras: tuple[ast.expr, ...] = ()
    """The further arguments of Annotated."""


def annotation(node: ast.expr | None, default: Any, program: ScriptProgram) -> Annotation:
    """Read `int`, `Optional[float]`, `Literal["a", "b"]`, `list[str]`, an Enum's name, Annotated of these."""
    node = _unquoted(node)
    if node is None:
        return Annotation(type(default).__name__ if isinstance(default, bool | int | float) else "str")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [side for side in (node.left, node.right) if not _is_none(side)]
        return annotation(sides[0], default, program) if sides else Annotation()
    if isinstance(node, ast.Subscript):
        return _subscript(node, default, program)
    name = _last(node)
    if name in LISTS:
        return Annotation("str", is_list=True)
    if (members := enum_values(name, program)) is not None:
        return Annotation("str", tuple(members.values()))
    return Annotation(name)


def enum_default(node: ast.expr | None, program: ScriptProgram) -> Any:
    """Return the value of `Precision.bf16` if the script defines that Enum."""
    if not isinstance(node, ast.Attribute):
        return None
    if node.attr == "value":
        return enum_default(node.value, program)
    return (enum_values(_last(node.value), program) or {}).get(node.attr)


def _subscript(node: ast.Subscript, default: Any, program: ScriptProgram) -> Annotation:
    name = _last(node.value)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Literal":
        choices = tuple(value(part, {}) for part in parts)
        return Annotation(type(choices[0]).__name__ if choices else "str", choices or None)
    if name == "Annotated" and parts:
        inner = annotation(parts[0], default, program)
        return Annotation(inner.type, inner.choices, inner.is_list, tuple(parts[1:]))
    if name in ("Optional", "Union", "Final", "ClassVar"):
        types = [part for part in parts if not _is_none(part)]
        return annotation(types[0], default, program) if types else Annotation()
    if name in LISTS and parts:
        inner = annotation(parts[0], None, program)
        return Annotation(inner.type, inner.choices, is_list=True)
    return Annotation(name)


def _unquoted(node: ast.expr | None) -> ast.expr | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return parsed_expression(node.value)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return node


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
