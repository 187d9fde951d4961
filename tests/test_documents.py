"""Nothing a person can type, set or see is left out of the documents."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import typer.main

from cli.main import app
from dashboard.settings import Settings
from domain.messages import Reason, State

ROOT = Path(__file__).parents[1]
COMMANDS = dict(typer.main.get_group(app).commands)
LINK = r"\]\((?!https?:|#)([^)#]+)"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_commands_and_their_options_are_on_the_command_line_page() -> None:
    page = (ROOT / "docs/COMMAND-LINE.md").read_text()
    documented = {"--help", "--json", "--data", *re.findall(r"`(--[a-z-]+)[ `]", page)}
    assert [name for name in COMMANDS if f"`rankzero {name}" not in page] == []
    missing = {name: options(name) - documented for name in COMMANDS}
    assert {name: left for name, left in missing.items() if left} == {}


def options(command: str) -> set[str]:
    """The long names of a command's options."""
    parameters = COMMANDS[command].params
    return {max(parameter.opts, key=len) for parameter in parameters if parameter.opts[0][0] == "-"}


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


def test_every_state_and_reason_is_explained() -> None:
    page = (ROOT / "docs/RUN-LIFE.md").read_text()
    assert [word for word in (*State, *Reason) if word not in page] == []


def test_links_between_pages_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(LINK, page.read_text())]
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


def test_the_readme_says_at_its_start_how_to_try_it_and_how_to_test_it() -> None:
    start = (ROOT / "README.md").read_text().partition("## Start")[2].partition("\n## ")[0]
    commands = re.findall(r"^make ([a-z-]+)$", start, re.MULTILINE)
    assert {"demo", "test"} <= set(commands)
    assert set(commands) <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert re.search(r"\d+ minutes on 2 cores", start)


GLOSSARY = (ROOT / "docs/GLOSSARY.md").read_text()
CODE_NAMES = sorted(set(re.findall(r"`((?:domain|db|worker|dashboard|cli)\.[\w.]+)`", GLOSSARY)))


def test_words_of_the_glossary_stand_in_the_code() -> None:
    assert [name for name in CODE_NAMES if not stands_in_the_code(name)] == []


def stands_in_the_code(name: str) -> bool:
    """Whether it is a module, or something in one."""
    module, _, attribute = name.rpartition(".")
    try:
        loaded = importlib.import_module(module)
        return hasattr(loaded, attribute) or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


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
