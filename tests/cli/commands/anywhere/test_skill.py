"""`rankzero skill`: its page names what this version has."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from pkgutil import iter_modules

import pytest

import rankzero
from cli.commands.anywhere.skill import NAMED, TOOLS, skill_text
from cli.main import COMMANDS, name_of, run


def test_the_page_is_a_skill_of_this_version() -> None:
    text = skill_text()
    front = re.fullmatch(r"---\nname: rankzero\ndescription: >-\n((?:  .*\n)+)---\n\n# Rankzero\n.*", text, re.DOTALL)
    assert front is not None and f"For Rankzero {metadata.version('rankzero')}." in front[1]
    assert len(" ".join(front[1].split())) <= 1024 and len(text.splitlines()) <= 120
    assert max(map(len, text.splitlines())) <= 160


def test_it_names_commands_that_exist_each_with_its_help() -> None:
    text, known = skill_text(), {name_of(place) for place in COMMANDS}
    assert set(NAMED) <= known
    assert set(re.findall(r"`rankzero ([a-z-]+)", text)) - {"mcp"} <= known
    assert "- `rankzero stop`: Ask runs to end: SIGTERM, and after its grace period SIGKILL.\n" in text


def test_it_names_what_scripts_import() -> None:
    names = set(re.findall(r"`([A-Z]\w+)`", skill_text().partition("Errors are")[2].partition("\n")[0]))
    assert names == {"Refused", "NotFound", "Away", "TimedOut", "NeverReached"} and names <= set(dir(rankzero))


def test_its_tools_are_those_of_the_dashboard() -> None:
    tools = pytest.importorskip("dashboard.agents.tools")
    served = {
        tool.name
        for module in iter_modules(tools.__path__, "dashboard.agents.tools.")
        for tool in getattr(pytest.importorskip(module.name), "TOOLS", ())
    }
    assert served == set(TOOLS)
    assert "mcp" in map(name_of, COMMANDS)


def test_it_is_printed_or_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["skill"]) == 0 and capsys.readouterr().out == skill_text()
    assert run(["skill", "--install", str(tmp_path / "skills"), "--json"]) == 0
    path = Path(json.loads(capsys.readouterr().out)["path"])
    assert path == tmp_path / "skills/rankzero/SKILL.md" and path.read_text() == skill_text()
    assert run(["skill", "--json"]) == 0 and json.loads(capsys.readouterr().out) == {"skill": skill_text()}


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert run(["skill", "--install", str(tmp_path / "file")]) == 1
    assert "SKILL.md cannot be written: Not a directory" in capsys.readouterr().err
