"""Read the choices of an option as a person types them: an Enum's members, a range, the keys of a dictionary."""

from __future__ import annotations

import ast
from typing import Any

from dashboard.script_reader.source import ScriptProgram, SourceFile, as_written, constants_of, plain, value

MOST_CHOICES = 200
"""A longer range is no list that anybody chooses from."""
DEEPEST = 8


def choices_of(
    node: ast.expr | None, type_: ast.expr | None, source: SourceFile, program: ScriptProgram, depth: int = 0
) -> tuple[Any, ...] | None:
    """Return the texts that an option accepts; None where they are unknown. `type_` is what converts them."""
    if depth > DEEPEST:  # names that follow from each other
        return None
    if isinstance(node, ast.Call) and _last(node.func) in ("list", "tuple", "sorted", "set", "keys"):
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
        return choices_of(inner, type_, source, program, depth + 1) or _literal(node, source)
    if isinstance(node, ast.Call) and _last(node.func) == "range":
        return _numbers(node, source)
    if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        return _of_comprehension(node, program)
    if isinstance(node, ast.Attribute) and node.attr == "__members__":
        return tuple(enum_values(_last(node.value), program) or ()) or None
    if isinstance(node, ast.Dict):
        return _literal(ast.List([key for key in node.keys if key is not None], ast.Load()), source)
    if isinstance(node, ast.List | ast.Tuple) and node.elts and all(isinstance(e, ast.Attribute) for e in node.elts):
        members = tuple(enum_member(element, type_, program) for element in node.elts)
        return members if None not in members else _literal(node, source)
    if isinstance(node, ast.Name | ast.Attribute):
        return _of_name(node, type_, source, program, depth)
    return _literal(node, source)


def enum_member(node: ast.expr | None, type_: ast.expr | None, program: ScriptProgram) -> Any:
    """Return the text that stands for `Precision.bf16`; None where the program has no such member."""
    if not isinstance(node, ast.Attribute):
        return None
    if node.attr in ("value", "name") and isinstance(node.value, ast.Attribute):
        members = enum_values(_last(node.value.value), program) or {}
        member = node.value.attr if node.value.attr in members else None
        return members.get(node.value.attr) if node.attr == "value" else member
    members = enum_values(_last(node.value), program) or {}
    if node.attr not in members:
        return None
    return members[node.attr] if _takes_values(type_, _last(node.value)) else node.attr


def enum_values(name: str, program: ScriptProgram) -> dict[str, Any] | None:
    """Return the members of an Enum of the program with their values, None for a value that is not literal."""
    definition = program.definition(name)
    if definition is None or not isinstance(definition[1], ast.ClassDef):
        return None
    if not {_last(base) for base in definition[1].bases} & {"Enum", "StrEnum", "IntEnum", "ExplicitEnum"}:
        return None
    targets = [node.targets[0] for node in definition[1].body if isinstance(node, ast.Assign)]
    literals = constants_of(definition[1].body)
    names = [target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("_")]
    return {name: plain(literals.get(name)) for name in names}


def _of_name(
    node: ast.expr, type_: ast.expr | None, source: SourceFile, program: ScriptProgram, depth: int
) -> tuple[Any, ...] | None:
    members = enum_values(_last(node), program)
    if members is not None:
        texts = tuple(members.values() if _takes_values(type_, _last(node)) else members)
        return texts if None not in texts else None
    assigned = _assigned(node, source)
    if isinstance(assigned, ast.Dict | ast.Call | ast.ListComp):
        return choices_of(assigned, type_, source, program, depth + 1)
    return _literal(node, source)


def _assigned(name: ast.expr, source: SourceFile) -> ast.expr | None:
    """Return what the module assigns to a name."""
    for node in source.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(name, ast.Name):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if name.id in map(as_written, targets):
                return node.value
    return None


def _of_comprehension(
    node: ast.ListComp | ast.GeneratorExp | ast.SetComp, program: ScriptProgram
) -> tuple[Any, ...] | None:
    """Read `[o.value for o in Opt]` and `[o.name for o in Opt]`."""
    generator = node.generators[0]
    members = enum_values(_last(generator.iter), program)
    is_plain = len(node.generators) == 1 and not generator.ifs and isinstance(node.elt, ast.Attribute)
    if not members or not is_plain or not isinstance(node.elt, ast.Attribute):
        return None
    texts: tuple[Any, ...] = tuple({"name": list(members), "value": list(members.values())}.get(node.elt.attr, ()))
    return texts if texts and None not in texts else None


def _takes_values(type_: ast.expr | None, name: str) -> bool:
    """Whether an option's text is a member's value: `type=Opt` calls the class with it; other types look up names."""
    return type_ is None or _last(type_) == name


def _numbers(node: ast.Call, source: SourceFile) -> tuple[int, ...] | None:
    bounds = [value(argument, source.constants) for argument in node.args]
    if not 1 <= len(bounds) <= 3 or not all(type(bound) is int for bound in bounds) or 0 in bounds[2:]:
        return None
    numbers = range(*bounds)
    return tuple(numbers) if 0 < len(numbers) <= MOST_CHOICES else None


def _literal(node: ast.expr | None, source: SourceFile) -> tuple[Any, ...] | None:
    choices = value(node, source.constants)
    return tuple(choices) if isinstance(choices, list) and choices else None


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
