"""Read type annotations of options: type, choices, and whether several values are taken."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from dashboard.script_reader.parsing import parsed_expression
from dashboard.script_reader.source import ScriptProgram
from dashboard.script_reader.values import constants_of, plain, value

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
    if (members := _enum_members(name, program)) is not None:
        return Annotation("str", tuple(members))
    return Annotation(name)


def enum_default(node: ast.expr | None, program: ScriptProgram) -> Any:
    """Return the value of `Precision.bf16` if the script defines that Enum."""
    if not isinstance(node, ast.Attribute):
        return None
    if node.attr == "value":
        return enum_default(node.value, program)
    return (_enum_values(_last(node.value), program) or {}).get(node.attr)


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


def _enum_members(name: str, program: ScriptProgram) -> list[Any] | None:
    values = _enum_values(name, program)
    return None if values is None else list(values.values())


def _enum_values(name: str, program: ScriptProgram) -> dict[str, Any] | None:
    definition = program.definition(name)
    if definition is None or not isinstance(definition[1], ast.ClassDef):
        return None
    bases = {_last(base) for base in definition[1].bases}
    if not bases & {"Enum", "StrEnum", "IntEnum", "ExplicitEnum"}:
        return None
    return {name: plain(member) for name, member in constants_of(definition[1].body).items()}


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
