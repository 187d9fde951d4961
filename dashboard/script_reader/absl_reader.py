"""Read options of absl: `flags.DEFINE_float("lr", 1e-3, "learning rate")`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from dashboard.script_reader.choices import choices_of, enum_values
from dashboard.script_reader.options import Option
from dashboard.script_reader.source import ScriptProgram, SourceFile, keywords, text, value

MODULES = ("absl.flags", "absl.app.flags", "tensorflow.flags", "tensorflow.compat.v1.flags")
TYPES = {
    "float": "float", "integer": "int", "string": "str", "bool": "bool", "boolean": "bool", "enum": "str",
    "list": "str", "spaceseplist": "str", "multi_string": "str", "multi_integer": "int", "multi_float": "float",
    "multi_enum": "str", "enum_class": "str", "multi_enum_class": "str",
}  # fmt: skip
WITH_CHOICES = ("enum", "multi_enum", "enum_class", "multi_enum_class")


def read(program: ScriptProgram) -> list[Option]:
    """Return the flags that a program defines under literal names."""
    required = {name for source in program.sources for name in _required(source)}
    return [option for source in program.sources for option in _defined(source, program, required)]


def _defined(source: SourceFile, program: ScriptProgram, required: set[str]) -> Iterator[Option]:
    for call in source.calls:
        module, _, function = source.dotted(call.func).rpartition(".")
        kind = function.removeprefix("DEFINE_")
        if module in MODULES and function != kind and kind in TYPES:
            option = _option(kind, call, source, program, required)
            if option is not None:
                yield option


def _option(kind: str, call: ast.Call, source: SourceFile, program: ScriptProgram, required: set[str]) -> Option | None:
    names = ["name", "default", *(["enum_values"] if kind in WITH_CHOICES else []), "help"]
    names = [{"enum_values": "enum_class"}.get(n, n) if kind.endswith("enum_class") else n for n in names]
    arguments = dict(zip(names, call.args, strict=False)) | keywords(call)
    name = value(arguments.get("name"), source.constants)
    if not isinstance(name, str):
        return None
    default = value(arguments.get("default"), source.constants)
    option = Option(
        flags=(f"--{name}",),
        name=name,
        type=TYPES[kind],
        default=",".join(map(str, default)) if kind == "list" and isinstance(default, list) else default,
        choices=_choices(arguments, source, program),
        help=text(arguments.get("help"), source.constants),
        required=name in required or value(arguments.get("required"), {}) is True,
        kind="repeated" if kind.startswith("multi_") else "value",
    )
    return option.as_switch(f"--{name}", f"--no{name}") if TYPES[kind] == "bool" else option


def _choices(arguments: dict[str, ast.expr], source: SourceFile, program: ScriptProgram) -> tuple[Any, ...] | None:
    """Return the values of an enum: literal ones, or the names of a class's members in lower case, as absl has them."""
    if "enum_class" in arguments:
        members = enum_values(ast.unparse(arguments["enum_class"]), program)
        return tuple(name.lower() for name in members) if members else None
    return choices_of(arguments.get("enum_values"), None, source, program)


def _required(source: SourceFile) -> Iterator[str]:
    for call in source.calls:
        if call.args and source.dotted(call.func).rpartition(".")[2] in (
            "mark_flag_as_required",
            "mark_flags_as_required",
        ):
            names = value(call.args[0], source.constants)
            yield from names if isinstance(names, list) else [names]
