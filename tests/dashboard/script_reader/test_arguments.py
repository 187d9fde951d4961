"""Reading a script's options from its source, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.planning.preview import recipe_options
from dashboard.script_reader.options import Option
from dashboard.script_reader.reading import read_script, script_in
from dashboard.script_reader.source import UnreadableScript
from domain.choices import RECIPES
from tests.dashboard.script_reader.programs import program_in

SCRIPT = """
import argparse
BATCH = 4 * 8
RATE: float = 1e-3
open("/tmp/must-never-be-written", "w")
def main():
    p = argparse.ArgumentParser()
    p.add_argument("data", help="where the data is")
    p.add_argument("-b", "--batch-size", type=int, default=BATCH,
                   help="per GPU,\\n       not in all")
    p.add_argument("--lr", default=RATE)
    p.add_argument("--arch", choices=["r18", "r50"], default="r18")
    group = p.add_argument_group("more")
    group.add_argument("--amp", action="store_true")
    group.add_argument("--no-shuffle", action="store_false", dest="shuffle")
    group.add_argument("--epochs", type=positive, default=3, required=True)
    group.add_argument("--when", default=compute())
    group.add_argument(*FLAGS)
    group.add_argument("--out", type=pathlib.Path)
"""


def options_in(source: str) -> list[Option]:
    return script_in(program_in(source)).options


def test_options_are_read_as_they_are_written() -> None:
    options = {option.name: option for option in options_in(SCRIPT)}
    assert list(options) == ["data", "batch_size", "lr", "arch", "amp", "shuffle", "epochs", "when", "out"]
    batch = options["batch_size"]
    assert (batch.flags, batch.type, batch.default) == (("-b", "--batch-size"), "int", 32)
    assert batch.help == "per GPU, not in all"
    assert (options["lr"].default, options["lr"].type) == (0.001, "float")
    assert options["arch"].choices == ("r18", "r50")
    assert (options["amp"].type, options["amp"].default) == ("bool", False)
    assert options["shuffle"].default is True
    assert (options["epochs"].type, options["epochs"].required) == ("int", True)
    assert (options["when"].default, options["out"].type) == (None, "Path")
    assert options["data"].required


@pytest.mark.parametrize("source", ["", "p.add_argument()"])
def test_a_program_without_arguments_has_no_options(source: str) -> None:
    assert options_in(source) == []


@pytest.mark.parametrize("source", ["def (", "\0", "x = " + "(" * 5000, "é\udcff"])
def test_text_that_is_no_program_is_no_script(source: str) -> None:
    with pytest.raises(UnreadableScript):
        options_in(source)


def test_a_file_that_cannot_be_read_is_no_script(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.py", "", "binary.py"):
        with pytest.raises(UnreadableScript):
            read_script(tmp_path, name)


def test_a_script_that_was_changed_is_read_again(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("p.add_argument('--lr', default=1)")
    assert read_script(tmp_path, "train.py").options[0].default == 1
    script.write_text("p.add_argument('--lr', default=22)")
    assert read_script(tmp_path, "train.py").options[0].default == 22


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_say_their_batch_size_rate_and_epochs(name: str) -> None:
    defaults = {option.name: option.default for option in recipe_options(name)}
    assert defaults["batch_size"] > 0
    assert 0 < defaults["lr"] < 1
    assert defaults["epochs"] >= 1
    assert {"precision", "seed", "resume"} <= defaults.keys()
