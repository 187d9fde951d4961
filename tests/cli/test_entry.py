"""`rankzero watch` begins without the imports of other commands, and reads its options as Typer does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli import entry
from domain.clients.addresses import data_directory
from worker.watched.front import WatchOptions


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("-- python train.py --lr 1", WatchOptions(["python", "train.py", "--lr", "1"])),
        ("python train.py --name x", WatchOptions(["python", "train.py", "--name", "x"])),
        (
            "--name n --project=p --run k --look-only --tag a --tag=b -- cmd -- more",
            WatchOptions(["cmd", "--", "more"], "n", "p", ("a", "b"), "k", True),
        ),
        ("--help", None),
        ("-h", None),
        ("", None),
        ("--", None),
        ("--name", None),
        ("--nam n -- cmd", None),
        ("--look-only=yes -- cmd", None),
        ("--unknown -- cmd", None),
    ],
)
def test_options_are_read_at_once_and_all_else_is_typers(words, options):
    assert entry.parsed(words.split()) == options


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("watch --help", 0, "--look-only"),
        ("watch --name n", 2, "Missing argument 'CMD'"),
        ("watch --unknown -- cmd", 2, "No such option: --unknown"),
        ("--version", 0, "rankzero "),
    ],
)
def test_help_and_wrong_usage_are_explained(words, code, text):
    program = [sys.executable, "-P", "-c", "from cli.entry import main; main()", *words.split()]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == code and text in done.stdout + done.stderr


def test_both_ways_to_the_command_read_the_same_options(monkeypatch):
    from cli.commands.anywhere import watch
    from cli.main import run

    given = []
    monkeypatch.setattr(watch, "run_watch", given.append)
    words = ["--name", "n", "--tag", "a", "--run", "k", "--", "python", "train.py", "--lr", "1"]
    run(["watch", *words])
    run(["watch", *(word for word in words if word != "--")])
    assert given == [entry.parsed(words), entry.parsed(words)]


@pytest.mark.parametrize("variables", [{}, {"RANKZERO_DATA": "~/mine"}, {"XDG_DATA_HOME": "/else"}])
def test_the_data_directory_is_that_of_other_commands(monkeypatch, variables):
    for name in ("RANKZERO_DATA", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert entry.data_directory() == data_directory(None)


IMPORTED = """
import sys
from cli.entry import parsed
parsed(["--", "true"])
import worker.watched.front
print(*sys.modules)
"""


def test_a_watched_command_waits_for_no_large_import():
    argv = [sys.executable, "-P", "-c", IMPORTED]
    modules = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    slow = {"typer", "pydantic", "httpx2", "asyncio", "domain.spec", "domain.messages", "psutil", "platformdirs"}
    assert modules & slow == set()
    allowed = sys.stdlib_module_names | {"cli", "domain", "worker"}
    foreign = {name.partition(".")[0] for name in modules} - allowed
    assert {
        name for name in foreign if not name.startswith(("_", "sitecustomize")) and Path(name).suffix != ".pth"
    } == set()
