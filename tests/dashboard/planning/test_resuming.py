"""Resuming with changes: which checkpoint is the last good one, and how the changes reach the program."""

from __future__ import annotations

from pathlib import Path

from dashboard.planning import fixes
from domain.spec import RunSpec

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--resume")
parser.parse_args()
"""


def test_a_script_is_handed_what_it_takes_and_asked_for_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    spec = RunSpec(target=str(tmp_path / "train.py"), args=["--lr", "0.2"])
    assert fixes.current(spec) == {"lr": 0.2, "epochs": 3}
    new = fixes.changed(spec, {"lr": 0.05, "epochs": 9}, "abcdefghij:last.pt")
    assert (new.lr, new.epochs, new.resume, new.lr_scaling) == (0.05, 9, "abcdefghij:last.pt", "none")
    assert new.args[:2] == ["--lr", "{lr}"]
    assert set(new.args[2:]) == {"--epochs={epochs}", "--resume={resume}"}


def test_a_recipe_takes_all_of_it_without_further_arguments() -> None:
    spec = RunSpec(target="language_model", lr=0.001)
    assert fixes.current(spec) == {"lr": 0.001, "epochs": None, "max_steps": None}
    new = fixes.changed(spec, {"max_steps": 90}, None)
    assert (new.lr, new.max_steps, new.args, new.resume) == (0.001, 90, [], None)
