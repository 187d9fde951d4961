"""Reads which options a training script takes, from its source; the script is never executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

LARGEST_SCRIPT_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class Option:
    """One option of a script's argparse parser, as far as its source says."""

    flags: tuple[str, ...]
    name: str
    type: str | None
    default: Any
    choices: tuple[Any, ...] | None
    help: str | None
    required: bool


def read_options(script: Path) -> list[Option]:
    """The options of a script; none when it cannot be read or parsed."""
    try:
        status = script.stat()
    except OSError:
        return []
    if status.st_size > LARGEST_SCRIPT_BYTES or not script.is_file():
        return []
    return list(_read(script, status.st_mtime_ns, status.st_size))


def options_in(source: str) -> list[Option]:
    """The options in a program text, in the order in which they are added."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    constants = _constants(tree)
    calls = sorted(_add_argument_calls(tree), key=lambda call: (call.lineno, call.col_offset))
    return [option for call in calls if (option := _option(call, constants)) is not None]


def default_of(options: list[Option], *names: str) -> Any:
    """The default of the first option that has one of these names."""
    return next((o.default for o in options if o.name in names and o.default is not None), None)


@lru_cache(maxsize=256)
def _read(script: Path, _mtime_ns: int, _size: int) -> tuple[Option, ...]:
    try:
        return tuple(options_in(script.read_text(errors="replace")))
    except OSError:
        return ()


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Names assigned once, at the top of the module, to a value that is written there."""
    found: dict[str, Any] = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if (
            isinstance(target, ast.Name)
            and isinstance(node, ast.Assign | ast.AnnAssign)
            and value is not None
        ):
            known, constant = _literal(value, {})
            if known:
                found[target.id] = constant
    return found


def _add_argument_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "add_argument"
        ):
            yield node


def _option(call: ast.Call, constants: dict[str, Any]) -> Option | None:
    flags = tuple(a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
    if not flags or len(flags) != len(call.args):
        return None
    given = {k.arg: k.value for k in call.keywords if k.arg}
    long = next((f for f in flags if f.startswith("--")), flags[0])
    action = _value(given.get("action"), constants)
    default = _value(given.get("default"), constants)
    if action in ("store_true", "store_false") and "default" not in given:
        default = action == "store_false"
    choices = _value(given.get("choices"), constants)
    return Option(
        flags=flags,
        name=str(_value(given.get("dest"), constants) or long.lstrip("-").replace("-", "_")),
        type="bool" if action in ("store_true", "store_false") else _type(given.get("type"), default),
        default=default,
        choices=tuple(choices) if isinstance(choices, list | tuple | set | dict) else None,
        help=_text(_value(given.get("help"), constants)),
        required=_value(given.get("required"), constants) is True or not flags[0].startswith("-"),
    )


def _type(node: ast.expr | None, default: Any) -> str | None:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
    if name in ("int", "float", "str", "bool", "Path"):
        return name
    if isinstance(default, bool | int | float):  # also with a checking function of the script's own
        return type(default).__name__
    return "str" if node is None else name


def _value(node: ast.expr | None, constants: dict[str, Any]) -> Any:
    return None if node is None else _literal(node, constants)[1]


def _literal(node: ast.expr, constants: dict[str, Any]) -> tuple[bool, Any]:
    """(is it known, its value) of an expression: literals, names of constants, and products of numbers."""
    if isinstance(node, ast.Name):
        return node.id in constants, constants.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Add | ast.Sub | ast.Div):
        return _arithmetic(node, constants)
    try:
        return True, ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None


def _arithmetic(node: ast.BinOp, constants: dict[str, Any]) -> tuple[bool, Any]:
    left, right = _literal(node.left, constants)[1], _literal(node.right, constants)[1]
    if type(left) not in (int, float) or type(right) not in (int, float):
        return False, None
    if isinstance(node.op, ast.Mult):
        return True, left * right
    if isinstance(node.op, ast.Add):
        return True, left + right
    if isinstance(node.op, ast.Sub):
        return True, left - right
    return (True, left / right) if right else (False, None)


def _text(value: Any) -> str | None:
    return None if value is None else " ".join(str(value).split())
