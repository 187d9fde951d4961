"""The lanes of the tests, and the files of `make test-real` for which there is time after a change.

These are the files that the last day's commits touch, then others in an order drawn from the newest commit, so that in
time every file has its turn.
"""

from __future__ import annotations

import ast
import json
import random
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeGuard

import pytest

from tests.changed import PACKAGES

LANES = ("test", "real", "long")
"""The tests without either mark (`make test`), those marked `real` (`make test-real`) and `long` (`make test-long`)."""
ROOT = Path(__file__).parents[1]
DURATIONS = Path(__file__).with_name("durations.json")
"""Test-seconds of each file of `make test-real`, as its last complete run measured them."""
REAL = re.compile(r"\bmark\.(real|both_stores)\b")
"""Marks of tests in `make test-real`; tests of both stores run there on PostgreSQL."""
UNMEASURED_S = 30.0
PROCESSES = 2
BUDGET_S = 20 * 60.0
"""Wall-clock time of a turn."""


def lane_of(marks: Collection[str]) -> str:
    """The lane of a test with these marks; the longest lane decides."""
    return "long" if "long" in marks else "real" if "real" in marks else "test"


@cache
def lanes_in(source: str) -> dict[str, str]:
    """Return the lane of each function of a test module; a mark counts if all cases of the function have it."""
    module = ast.parse(source)
    constants = {
        target.id: statement.value
        for statement in module.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    outer = [constants["pytestmark"]] if "pytestmark" in constants else []
    return {name: lane_of(_marks(decorators, constants)) for name, decorators in _decorated(module, outer)}


def _decorated(scope: ast.Module | ast.ClassDef, outer: list[ast.expr]) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield each function's name with its own decorators and those of its class."""
    for node in scope.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, [*outer, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            yield from _decorated(node, [*outer, *node.decorator_list])


def _marks(expressions: list[ast.expr], constants: dict[str, ast.expr]) -> set[str]:
    """Return the marks in these expressions; `constants`: the module's own names for some of them."""
    resolved = [constants.get(e.id, e) if isinstance(e, ast.Name) else e for e in expressions]
    return {mark for expression in resolved for mark in _marks_of(expression)}


def _marks_of(expression: ast.expr) -> set[str]:
    """Return the marks in an expression; for a `parametrize`, those that all its cases have."""
    if _calls(expression, "parametrize"):
        cases = expression.args[1].elts if isinstance(expression.args[1], ast.List | ast.Tuple) else []
        marked = [_marks_of(case) if _calls(case, "param") else set[str]() for case in cases]
        return set.intersection(*marked) if marked else set()
    return {node.attr for node in ast.walk(expression) if isinstance(node, ast.Attribute)}


def _calls(expression: ast.expr, name: str) -> TypeGuard[ast.Call]:
    return isinstance(expression, ast.Call) and getattr(expression.func, "attr", "") == name


def within_budget(
    durations: Mapping[str, float], touched: Collection[str], seed: str, budget_s: float = BUDGET_S * PROCESSES
) -> list[str]:
    """Return the files to run, the touched ones first, each group in an order drawn from the seed.

    `durations`: test-seconds of each file. A file that no longer fits into the budget is left out."""
    drawn = sorted(durations)
    random.Random(seed).shuffle(drawn)
    drawn.sort(key=lambda file: file not in touched)
    chosen, left_s = [], budget_s
    for file in drawn:
        if durations[file] <= left_s:
            chosen.append(file)
            left_s -= durations[file]
    return chosen


def touched(changed: Iterable[str], files: Collection[str]) -> set[str]:
    """Return those of the test files that changed, or whose folder mirrors a changed file's."""
    return {test for name in changed for test in files if test == name or _mirrors(test, Path(name))}


def _mirrors(test: str, changed: Path) -> bool:
    return changed.parts[0] in PACKAGES and Path(test).parent == Path("tests") / changed.parent


def real_files(root: Path = ROOT) -> list[str]:
    """Return the files with tests of `make test-real`."""
    sources = {path: path.read_text() for path in sorted((root / "tests").rglob("test_*.py"))}
    return [str(path.relative_to(root)) for path, source in sources.items() if _has_real(source)]


def _has_real(source: str) -> bool:
    lanes = {lane for name, lane in lanes_in(source).items() if name.startswith("test_")}
    return REAL.search(source) is not None and lanes != {"long"}


def measured(files: Iterable[str]) -> dict[str, float]:
    """Return the test-seconds of each file; UNMEASURED_S where it never ran."""
    seconds = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return {file: seconds.get(file, UNMEASURED_S) for file in files}


def record(reports: Iterable[object]) -> None:
    """Write down the test-seconds of each file, set-up and teardown included."""
    seconds: dict[str, float] = {}
    for report in reports:
        if isinstance(report, pytest.TestReport):
            file = report.nodeid.partition("::")[0]
            seconds[file] = seconds.get(file, 0.0) + report.duration
    rounded = {file: round(seconds[file], 1) for file in sorted(seconds)}
    DURATIONS.write_text(json.dumps(rounded, indent=1) + "\n")


def _changed_within_a_day() -> Iterator[str]:
    newest = int(_git("log", "-1", "--format=%ct") or 0)
    yield from _git("log", f"--since={newest - 24 * 3600}", "--name-only", "--format=").split()


def _git(*arguments: str) -> str:
    """Return the output of git in this checkout; empty if it is no checkout."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def turn() -> list[str]:
    """Return the files of `make test-real` that a turn runs after the newest commit."""
    durations = measured(real_files())
    chosen = within_budget(durations, touched(_changed_within_a_day(), durations), _git("rev-parse", "HEAD"))
    print(f"make test-real: {len(chosen)} of {len(durations)} files", flush=True)
    return chosen
