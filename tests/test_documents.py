"""Nothing a person can type, set or see is left out of the documents."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest
import typer.main

from cli.main import app
from dashboard.settings import Settings
from domain.messages import Reason, State

ROOT = Path(__file__).parents[1]
COMMANDS = dict(typer.main.get_group(app).commands)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_and_its_options_are_on_the_command_line_page(name: str) -> None:
    page = (ROOT / "docs/COMMAND-LINE.md").read_text()
    assert f"`rankzero {name}" in page
    everywhere = {"--help", "--json", "--data"}
    options = {
        max(parameter.opts, key=len) for parameter in COMMANDS[name].params if parameter.opts[0][0] == "-"
    }
    documented = set(re.findall(r"`(--[a-z-]+)[ `]", page))
    assert options - everywhere - documented == set()


def test_the_readme_lists_every_setting_with_its_default() -> None:
    table = re.search(
        r"<!-- settings:.*?-->(.*?)<!-- end of settings -->", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert table is not None
    rows = dict(re.findall(r"^\| `(RANKZERO_\w+)` \| (.*?) \|", table[1], re.MULTILINE))
    assert set(rows) == {f"RANKZERO_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, str | int | float):
            assert rows[f"RANKZERO_{name.upper()}"] == f"`{field.default}`", name


@pytest.mark.parametrize("word", [*State, *Reason])
def test_every_state_and_reason_is_explained(word: str) -> None:
    assert word in (ROOT / "docs/RUN-LIFE.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_readme_says_at_its_start_how_to_try_it_and_how_to_test_it() -> None:
    start = (ROOT / "README.md").read_text().partition("## Start")[2].partition("\n## ")[0]
    commands = re.findall(r"^make ([a-z-]+)$", start, re.MULTILINE)
    assert {"demo", "test"} <= set(commands)
    assert set(commands) <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert re.search(r"\d+ minutes on 2 cores", start)


GLOSSARY = (ROOT / "docs/GLOSSARY.md").read_text()
CODE_NAMES = sorted(set(re.findall(r"`((?:domain|db|worker|dashboard|cli)\.[\w.]+)`", GLOSSARY)))


@pytest.mark.parametrize("name", CODE_NAMES)
def test_a_word_of_the_glossary_stands_in_the_code(name: str) -> None:
    assert importlib.util.find_spec(name.rpartition(".")[0]), name
    module, _, attribute = name.rpartition(".")
    loaded = importlib.import_module(module)
    assert hasattr(loaded, attribute) or importlib.util.find_spec(name), name


def test_the_glossary_has_every_table_of_the_life_of_a_run() -> None:
    words = {
        "Run",
        "Attempt",
        "Task",
        "Node",
        "Series",
        "Checkpoint",
        "Snapshot",
        "HistoryEntry",
        "FindingRow",
    }
    assert {f"db.models.{word}" for word in words} <= set(CODE_NAMES)


def test_every_enumeration_of_the_domain_is_in_the_glossary() -> None:
    files = (ROOT / "domain").rglob("*.py")
    names = {
        name
        for path in files
        for name in re.findall(r"^class (\w+)\(StrEnum\)", path.read_text(), re.MULTILINE)
    }
    assert names and {name for name in names if f".{name}`" not in GLOSSARY} == set()


def test_contributing_names_folders_and_files_that_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:domain|db|worker|dashboard|cli|tests|docs)/[\w./]*)`", text)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists() and "NAME" not in path] == []
