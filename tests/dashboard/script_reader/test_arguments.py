"""Reading a script's options from its source, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.planning.preview import recipe_options
from dashboard.script_reader.arguments import default_of, options_in, read_options
from domain.launch.plan import recipe_names

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


def test_the_first_name_with_a_default_counts() -> None:
    assert default_of(options_in(SCRIPT), "bs", "batch_size") == 32
    assert default_of(options_in(SCRIPT), "nothing") is None


@pytest.mark.parametrize("source", ["", "def (", "\0", "x = " + "(" * 5000, "p.add_argument()", "é\udcff"])
def test_what_is_no_program_has_no_options(source: str) -> None:
    assert options_in(source) == []


def test_a_file_that_cannot_be_read_has_no_options(tmp_path: Path) -> None:
    assert read_options(tmp_path / "missing.py") == []
    assert read_options(tmp_path) == []
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    assert read_options(tmp_path / "binary.py") == []


def test_a_script_that_was_changed_is_read_again(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("p.add_argument('--lr', default=1)")
    assert default_of(read_options(script), "lr") == 1
    script.write_text("p.add_argument('--lr', default=22)")
    assert default_of(read_options(script), "lr") == 22


@pytest.mark.parametrize("name", recipe_names())
def test_recipes_say_their_batch_size_rate_and_epochs(name: str) -> None:
    options = recipe_options(name)
    assert default_of(options, "batch_size") > 0
    assert 0 < default_of(options, "lr") < 1
    assert default_of(options, "epochs") >= 1
    assert {"precision", "seed", "resume"} <= {option.name for option in options}
