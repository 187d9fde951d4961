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
from domain.search.fields import ALIASES, FIELDS
from domain.search.query import FieldKind
from domain.spec import CATALOGUE
from tests.parts import PARTS

ROOT = Path(__file__).parents[1]
COMMANDS = dict(typer.main.get_group(app).commands)
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/RESULTS.md", *(ROOT / "docs").rglob("*.md")]
)
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


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


def test_options_of_launch_have_the_defaults_of_the_catalogue() -> None:
    page = (ROOT / "docs/COMMAND-LINE.md").read_text()
    table = page.partition("| option of `launch` |")[2].partition("\n\n")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:3] for line in table.splitlines()[2:]]
    defaults = [(option, default) for options, default in rows for option in re.findall(r"--[a-z-]+", options)]
    for row in CATALOGUE.values():
        if row.section and isinstance(row.default, str | int | float) and row.default:
            option = f"--{row.option or row.name.replace('_', '-')}"
            shown = "on" if row.default is True else str(row.default).removesuffix(".0")
            assert re.search(rf"\b{re.escape(shown)}\b", dict(reversed(defaults))[option]), option


def test_the_search_page_has_every_field_by_how_it_is_compared() -> None:
    table = (ROOT / "docs/SEARCH.md").read_text().partition("| fields | compared |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in table.splitlines()[2:]]
    assert {name for names in rows for name in names} == {*FIELDS, *ALIASES}
    *of_one_kind, moments = [{FIELDS[ALIASES.get(name, name)] for name in names} for names in rows]
    assert all(len(kinds) == 1 for kinds in of_one_kind) and moments == {FieldKind.MOMENT, FieldKind.DURATION}


def test_every_setting_stands_in_the_table_with_its_default() -> None:
    page = (ROOT / "docs/SETTINGS.md").read_text()
    table = re.search(r"<!-- settings:.*?-->(.*?)<!-- end of settings -->", page, re.DOTALL)
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
    links = [(page, link) for page in PAGES for link in links_of(page)]
    assert len(links) > 100
    assert [(page.name, link) for page, link in links if not leads_somewhere(page, link)] == []


def links_of(page: Path) -> list[str]:
    """Links to pages of ours and to their headings, and pictures."""
    return ["".join(groups) for groups in LINK.findall(page.read_text())]


def leads_somewhere(page: Path, link: str) -> bool:
    """Whether the file that a link of this page names is there, and its heading."""
    name, _, heading = link.partition("#")
    linked = page.parent / name if name else page
    return linked.exists() and (not heading or heading in headings(linked))


def headings(page: Path) -> set[str]:
    """The names by which links lead to the headings of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {Path(link).name for page in PAGES for link in links_of(page)}
    assert {path.name for path in (ROOT / "docs/pictures").iterdir()} - shown == set()


def test_readme_names_the_first_commands_and_how_long_the_tests_take() -> None:
    start = (ROOT / "README.md").read_text().partition("## Start")[2].partition("\n## ")[0]
    commands = re.findall(r"`?\bmake ([a-z-]+)", start)
    assert {"demo", "up", "test"} <= set(commands)
    assert set(commands) <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert re.search(r"`make test`[^.]*\d+ minutes on 2 cores", start)


def test_readme_leads_to_every_page_of_the_documents() -> None:
    linked = set(re.findall(r"\]\(docs/(\w[\w-]*\.md)", (ROOT / "README.md").read_text()))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - linked == set()


def test_documents_stay_short() -> None:
    assert words("README.md") <= 1_500
    assert words("docs/*.md") <= 35_200


def words(pages: str) -> int:
    """How many words these pages have together."""
    return sum(len(page.read_text().split()) for page in ROOT.glob(pages))


def test_changelog_of_a_version_stays_short() -> None:
    versions = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    assert versions and all(len(version.splitlines()) <= 100 for version in versions)


GLOSSARY = (ROOT / "docs/GLOSSARY.md").read_text()
CODE_NAMES = sorted(set(re.findall(r"`((?:domain|db|worker|dashboard|cli|tests)\.[\w.]+)`", GLOSSARY)))


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
    names = {name for path in files for name in re.findall(r"^class (\w+)\(StrEnum\)", path.read_text(), re.MULTILINE)}
    assert names and {name for name in names if f".{name}`" not in GLOSSARY} == set()


def test_contributing_names_folders_and_files_that_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    paths = re.findall(r"`((?:domain|db|worker|dashboard|cli|tests|docs)/[\w./]*)`", text)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists() and "NAME" not in path] == []


def test_contributing_names_each_part_of_the_tests() -> None:
    row = re.search(r"^\| `make test-long PART=.*$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert row and set(re.findall(r"`(\w+)`", row[0])) == set(PARTS)
