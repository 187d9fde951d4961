"""Commands are imported when they are called, and the list of them shows the help that each has."""

from __future__ import annotations

import subprocess
import sys

import typer

from cli.main import app, run

IMPORTED = """
import sys
from cli.main import run
run(sys.argv[1:])
modules = [name for name, module in sys.modules.items() if not hasattr(module, "__path__") or name == "httpx2"]
slow = ("domain.spec", "httpx2", "pydantic.types")
print(*[name for name in modules if name.startswith("cli.commands.") or name in slow])
"""


def imported(*arguments: str) -> list[str]:
    argv = [sys.executable, "-P", "-c", IMPORTED, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()[-1].split()


def test_the_list_of_commands_imports_none_of_them():
    assert imported("--help") == []


def test_a_command_imports_neither_models_nor_the_commands_of_other_subjects():
    modules = imported("runs", "--help")
    assert "cli.commands.runs.runs" in modules and not {"domain.spec", "httpx2", "cli.commands.runs.launch"} & {
        *modules
    }


def test_only_a_value_that_needs_conversion_imports_what_converts_it(monkeypatch):
    monkeypatch.setenv("RANKZERO_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("RANKZERO_TOKEN", "of nobody")
    assert "pydantic.types" not in imported("runs", "--project", "p", "--json")
    assert "pydantic.types" in imported("runs", "--limit", "7")


def test_each_command_is_described_as_its_own_help_begins():
    commands = typer.main.get_group(app).commands
    described = commands.described()  # type: ignore[attr-defined]
    assert {name: command.help for name, command in commands.items()} == {
        name: command.help for name, command in described.items()
    }


def test_a_misspelt_command_gets_a_suggestion(capsys):
    assert run(["rnus"]) == 2
    assert "Did you mean 'runs'" in capsys.readouterr().err
