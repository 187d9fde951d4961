"""A new field of the spec is written in its row and in what acts on it, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


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
