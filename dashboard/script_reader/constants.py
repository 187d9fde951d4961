"""Read batch size and learning rate that are plain numbers in a script without options for them."""

from __future__ import annotations

import ast

from dashboard.script_reader.source import ScriptProgram, SourceFile
from dashboard.script_reader.values import keywords, value

LOADER = "torch.utils.data.DataLoader"
OPTIMIZERS = "torch.optim."
SCHEDULERS = "torch.optim.lr_scheduler."


def constants_in(program: ScriptProgram) -> dict[str, int | float]:
    """Return `batch_size` and `lr`, each only if all data loaders or all optimizers have the same value."""
    batch_sizes = [_number(source, call, "batch_size") for source, call in program.calls() if _loads(source, call)]
    rates = [_number(source, call, "lr") for source, call in program.calls() if _optimizes(source, call)]
    constants = {"batch_size": _agreed(batch_sizes), "lr": _agreed(rates)}
    return {name: number for name, number in constants.items() if number is not None}


def _loads(source: SourceFile, call: ast.Call) -> bool:
    return source.dotted(call.func) == LOADER


def _optimizes(source: SourceFile, call: ast.Call) -> bool:
    name = source.dotted(call.func)
    return name.startswith(OPTIMIZERS) and not name.startswith(SCHEDULERS)


def _number(source: SourceFile, call: ast.Call, keyword: str) -> int | float | None:
    """Return the number of a keyword argument; None where it is no literal or its name is assigned twice."""
    argument = keywords(call).get(keyword)
    if argument is None or any(_is_bound_again(source, node) for node in ast.walk(argument)):
        return None
    number = value(argument, source.constants)
    return number if type(number) in (int, float) and number > 0 else None


def _is_bound_again(source: SourceFile, node: ast.AST) -> bool:
    """Whether a name is assigned more than once, or is also a function's parameter."""
    if not isinstance(node, ast.Name):
        return False
    stored = [n for n in source.nodes if isinstance(n, ast.Name) and n.id == node.id and isinstance(n.ctx, ast.Store)]
    return len(stored) != 1 or any(isinstance(n, ast.arg) and n.arg == node.id for n in source.nodes)


def _agreed(numbers: list[int | float | None]) -> int | float | None:
    return numbers[0] if len(set(numbers)) == 1 else None
