"""A new field of the spec is written in its row and in what acts on it, and nowhere else."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain.spec import CATALOGUE, RunSpec

ROOT = Path(__file__).parents[1]
PACKAGES = ("domain", "db", "worker", "dashboard", "cli")


@pytest.fixture(scope="module")
def seen() -> dict[str, dict[str, Any]]:
    """What each place has of a field that was added to the text of `domain/spec.py`, and to nothing else."""
    argv = [sys.executable, "-P", "-W", "ignore", str(ROOT / "tests/added_field.py")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_its_row_alone_makes_an_option(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["command_line"] == {"option": ["--clip-norm", "Clip gradients to this norm.", "float"], "given": 0.5}


def test_its_row_alone_makes_an_input_of_the_form(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["form"] == {
        "input": [["Gradient norm", "not clipped"]],
        "help": ["Clip gradients to this norm."],
        "read": 0.5,
        "written": "0.5",
        "refused": {"clip_norm": "Gradient norm must be greater than 0, got '0'."},
        "is_swept": True,
    }


def test_its_row_alone_makes_it_searched_compared_and_shown(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["pages"] == {
        "search": "number",
        "diff": ["Gradient norm", None, 0.5],
        "page": [r"| Gradient norm | 0\.5 |"],
    }


def test_its_row_alone_passes_it_to_scripts(seen: dict[str, dict[str, Any]]) -> None:
    assert seen["scripts"] == {
        "options": ["max_grad_norm clip_grad", "the gradient norm"],
        "argument": "--clip=0.5",
        "variable": "0.5",
    }


MOST_NAMED = 4
OTHER_LISTS = {
    "db/archives/documents.py": "what may differ between the attempts of a run",
    "dashboard/script_reader/dataclass_reader.py": "options of other libraries",
}


def test_no_other_file_has_a_table_of_fields() -> None:
    tables = {
        f"{path.relative_to(ROOT)}:{line}": sorted(names)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if str(path.relative_to(ROOT)) not in {"domain/spec.py", *OTHER_LISTS}
        for line, names in tables_in(path)
    }
    assert tables == {}


def tables_in(path: Path) -> Iterator[tuple[int, set[str]]]:
    """Yield the constants of a module that name many fields of the spec."""
    for part in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(part, ast.Assign | ast.AnnAssign) and part.value is not None:
            names = names_in(part.value) & ({*RunSpec.model_fields} | {*CATALOGUE})
            if len(names) > MOST_NAMED:
                yield part.lineno, names


def names_in(value: ast.expr) -> set[str]:
    """The words of all texts in an expression."""
    texts = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return {word for text in texts for word in text.split()}
