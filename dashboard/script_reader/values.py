"""Read literal values, texts and types from source code, without evaluating it."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

PLAIN_TYPES = ("int", "float", "str", "bool", "Path")
LARGEST_EXPONENT = 64
LONGEST_TEXT = 500


def literal(node: ast.expr | None, constants: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return (is it known, its value) for literals, names of constants and arithmetic on numbers."""
    if node is None:
        return False, None
    if isinstance(node, ast.Name):
        return node.id in constants, constants.get(node.id)
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, constants)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        return _wrapped(node, constants)
    if isinstance(node, ast.List | ast.Tuple):
        items = [literal(item, constants) for item in node.elts]
        return all(is_known for is_known, _ in items), [item for _, item in items]
    try:
        return True, ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False, None


def value(node: ast.expr | None, constants: Mapping[str, Any]) -> Any:
    """Return a value that a form can show, None where it is unknown."""
    is_known, constant = literal(node, constants)
    return plain(constant) if is_known else None


def plain(constant: Any) -> Any:
    """Return a constant as None, bool, number, text or a list of those; None for other types."""
    if isinstance(constant, list | tuple | set | frozenset):
        return [plain(item) for item in constant]
    return constant if constant is None or isinstance(constant, bool | int | float | str) else None


def constants_of(body: list[ast.stmt]) -> dict[str, Any]:
    """Return module-level names that are assigned a literal, with their values."""
    constants: dict[str, Any] = {}
    for node in body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target: ast.expr = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        is_known, constant = literal(node.value, constants)
        if is_known and isinstance(target, ast.Name):
            constants[target.id] = constant
    return constants


def text(node: ast.expr | None, constants: Mapping[str, Any]) -> str | None:
    """Return a help text on one line, with an ellipsis for parts that are known only at run time."""
    if node is None:
        return None
    line = " ".join(_pieces(node, constants).split())
    return line[:LONGEST_TEXT] if line.strip(" …") else None


def type_name(node: ast.expr | None, default: Any) -> str | None:
    """Return the type's name (int, float, str, bool, Path or the script's own), else that of the default."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
    if name in PLAIN_TYPES:
        return name
    if isinstance(default, bool | int | float):  # also with a checking function of the script's own
        return type(default).__name__
    return "str" if node is None else name


def keywords(call: ast.Call) -> dict[str, ast.expr]:
    """Return a call's keyword arguments by name."""
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def called(node: ast.expr) -> ast.expr:
    """Return the function of a call, or the expression itself: a decorator with or without parentheses."""
    return node.func if isinstance(node, ast.Call) else node


def command_name(decorator: ast.expr, owners: set[str]) -> str | None:
    """Return the name in `@cli.command("name")`, empty for the function's own; None for another decorator."""
    function = called(decorator)
    if not (isinstance(function, ast.Attribute) and function.attr == "command"):
        return None
    if not (isinstance(function.value, ast.Name) and function.value.id in owners):
        return None
    arguments = decorator.args if isinstance(decorator, ast.Call) else []
    return str(value(arguments[0], {}) or "") if arguments else ""


def _wrapped(node: ast.Call, constants: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return the literal inside `Path("runs")`, `str("x")` and the like; `list(range(3))` is unknown."""
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if name in ("Path", "PosixPath", "str", "tuple", "list") and len(node.args) == 1 and not node.keywords:
        return literal(node.args[0], constants)
    return False, None


def _arithmetic(node: ast.BinOp, constants: Mapping[str, Any]) -> tuple[bool, Any]:
    left, right = literal(node.left, constants)[1], literal(node.right, constants)[1]
    if type(left) not in (int, float) or type(right) not in (int, float):
        return False, None
    try:
        return _computed(node.op, left, right)
    except (ArithmeticError, ValueError):
        return False, None


def _computed(operator: ast.operator, left: Any, right: Any) -> tuple[bool, Any]:
    if isinstance(operator, ast.Mult):
        return True, left * right
    if isinstance(operator, ast.Add):
        return True, left + right
    if isinstance(operator, ast.Sub):
        return True, left - right
    if isinstance(operator, ast.Div):
        return True, left / right
    if isinstance(operator, ast.FloorDiv):
        return True, left // right
    if isinstance(operator, ast.Pow) and abs(left) <= 1024 and abs(right) <= LARGEST_EXPONENT:
        return True, left**right
    return False, None


def _pieces(node: ast.expr, constants: Mapping[str, Any]) -> str:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _pieces(node.left, constants) + _pieces(node.right, constants)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return _pieces(node.left, constants)
    if isinstance(node, ast.JoinedStr):
        return "".join(_pieces(part, constants) for part in node.values)
    constant = value(node, constants)
    return "…" if constant is None else str(constant)
