"""Options that a function's signature makes: typer, python-fire, tyro."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dashboard.script_reader.annotations import Annotation, annotation, enum_default
from dashboard.script_reader.options import Kind, Option
from dashboard.script_reader.source import ScriptProgram, SourceFile
from dashboard.script_reader.values import keywords, text, value

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Parameter:
    """One parameter of a function, or one field of a class."""

    name: str
    annotation: ast.expr | None
    default: ast.expr | None
    help: str | None = None


def parameters(function: FunctionDef) -> list[Parameter]:
    """All parameters but self, with the expressions of their defaults."""
    given = [*function.args.posonlyargs, *function.args.args]
    missing: list[ast.expr | None] = [None] * (len(given) - len(function.args.defaults))
    pairs = [*zip(given, [*missing, *function.args.defaults], strict=True)]
    pairs += zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return [Parameter(a.arg, a.annotation, d) for a, d in pairs if a.arg not in ("self", "cls")]


def read(program: ScriptProgram) -> list[Option]:
    """The options of every command that is made of a function."""
    found: list[Option] = []
    for source in program.sources:
        commands = list(_typer_commands(source))
        if len(commands) > 1 and (names := tuple(name for _, name in commands)):
            found.append(
                Option(("command",), "command", "str", None, names, "The command to run", True, "positional")
            )
        for function, name in commands:
            command = name if len(commands) > 1 else None
            found += filter(None, (_typer(p, source, program, command) for p in parameters(function)))
        found += _called_with_a_function(source, program)
    return found


def plain_option(
    given: Parameter, source: SourceFile, program: ScriptProgram, style: str, prefix: str = ""
) -> Option:
    """An option that is named as its parameter; `style` says with which dashes, and how a switch is written."""
    known = value(given.default, source.constants)
    default = known if known is not None else enum_default(given.default, program)
    about = annotation(given.annotation, default, program)
    dashed = given.name.replace("_", "-") if style == "tyro" else given.name
    flag = f"--{prefix}{dashed}"
    option = Option(
        flags=(flag,),
        name=f"{prefix}{given.name}".replace("-", "_"),
        type=about.type,
        default=default,
        choices=about.choices,
        help=given.help,
        required=given.default is None,
        kind=_list_kind(about, style),
    )
    return _as_switch(option, flag, style) if about.type == "bool" and not about.is_list else option


def _as_switch(option: Option, flag: str, style: str) -> Option:
    ways = {
        "tyro": (flag, flag.replace("--", "--no-", 1)),
        "hf": (f"{flag}=True", f"{flag}=False"),
        "fire": (f"{flag}=True", f"{flag}=False"),
        "lightning": (f"{flag}=true", f"{flag}=false"),
        "tap": (flag, flag),
    }
    on, off = ways[style]
    return Option(**{**option.__dict__, "kind": "switch", "on": on, "off": off})


def _list_kind(about: Annotation, style: str) -> Kind:
    return "values" if about.is_list and style not in ("fire", "lightning") else "value"


def _typer_commands(source: SourceFile) -> Iterator[tuple[FunctionDef, str]]:
    """Functions that `@app.command()` or `typer.run` make into commands."""
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
            given = next((name for d in node.decorator_list if (name := _command(d, apps)) is not None), None)
            if given is not None or node.name in run:
                yield node, given or node.name.replace("_", "-")


def _command(decorator: ast.expr, apps: set[str]) -> str | None:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    if not (isinstance(called, ast.Attribute) and called.attr == "command"):
        return None
    if not (isinstance(called.value, ast.Name) and called.value.id in apps):
        return None
    given = decorator.args if isinstance(decorator, ast.Call) else []
    return str(value(given[0], {}) or "") if given else ""


def _typer(
    given: Parameter, source: SourceFile, program: ScriptProgram, command: str | None
) -> Option | None:
    about = annotation(given.annotation, None, program)
    if about.type == "Context":
        return None
    maker, is_old_style = _typer_maker(given, about, source)
    words = [*maker.args] if maker else []
    default_node = words.pop(0) if is_old_style and words else None if is_old_style else given.default
    if isinstance(default_node, ast.Constant) and default_node.value is ...:
        default_node = None
    known = value(default_node, source.constants)
    default = known if known is not None else enum_default(default_node, program)
    about = annotation(given.annotation, default, program)
    more = keywords(maker) if maker else {}
    is_argument = maker is not None and source.dotted(maker.func) == "typer.Argument"
    is_argument = is_argument or (maker is None and default_node is None)
    flags = [flag for word in words if isinstance(flag := value(word, source.constants), str)]
    return _typer_option(
        given.name, flags, about, default, is_argument, default_node is None,
        text(more.get("help"), source.constants), command,
    )  # fmt: skip


def _typer_maker(given: Parameter, about: Annotation, source: SourceFile) -> tuple[ast.Call | None, bool]:
    """The call of typer.Option or typer.Argument, and whether it stands in the default's place."""
    for node, is_default in [*((extra, False) for extra in about.extras), (given.default, True)]:
        if isinstance(node, ast.Call) and source.dotted(node.func) in ("typer.Option", "typer.Argument"):
            return node, is_default
    return None, False


def _typer_option(
    name: str, decls: list[str], about: Annotation, default: Any, is_argument: bool, required: bool,
    help_: str | None, command: str | None,
) -> Option:  # fmt: skip
    if is_argument:
        kind: Kind = "positionals" if about.is_list else "positional"
        return Option(
            (name,), name, about.type, default, about.choices, help_, required, kind, command=command
        )
    dashed = f"--{name.replace('_', '-')}"
    is_switch = about.type == "bool" and not about.is_list
    decls = decls or ([f"{dashed}/{dashed.replace('--', '--no-', 1)}"] if is_switch else [dashed])
    ons = [on for decl in decls if (on := decl.split("/")[0].strip()).startswith("-")]
    offs = [off for decl in decls if "/" in decl and (off := decl.split("/")[1].strip())]
    long = max(ons, key=len, default=None)
    return Option(
        flags=tuple(ons or [dashed]),
        name=name,
        type=about.type,
        default=default,
        choices=about.choices,
        help=help_,
        required=required,
        kind="switch" if is_switch else "repeated" if about.is_list else "value",
        on=long if is_switch else None,
        off=max(offs, key=len, default=None) if is_switch else None,
        command=command,
    )


def _called_with_a_function(source: SourceFile, program: ScriptProgram) -> Iterator[Option]:
    """`fire.Fire(main)` and `tyro.cli(main)`."""
    styles = {"fire.Fire": "fire", "tyro.cli": "tyro"}
    for call in source.calls:
        style = styles.get(source.dotted(call.func))
        if style and call.args and isinstance(call.args[0], ast.Name):
            found = program.definition(call.args[0].id)
            if found is not None and isinstance(found[1], FunctionDef):
                yield from (plain_option(p, source, program, style) for p in parameters(found[1]))
