"""What a stranger's tools read: the container, the hooks before a commit, and the forms of issues."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboard.settings import Settings

ROOT = Path(__file__).parents[1]
PROGRAM = re.compile(r"(?:\.venv|node_modules/\.)/?bin/([\w-]+)")
FORMS = sorted(set((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")) - {ROOT / ".github/ISSUE_TEMPLATE/config.yml"})
FIELDS = {"markdown": "value", "textarea": "label", "input": "label", "dropdown": "label", "checkboxes": "label"}


def test_the_container_is_set_up_by_a_script_and_opens_the_dashboards_port() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    script = ROOT / container["postCreateCommand"]
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    assert container["forwardPorts"] == [Settings.model_fields["port"].default]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z-]+)", script.read_text())) <= set(targets)


def hooks() -> Iterator[dict[str, Any]]:
    """The hooks; all are local ones."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    for repository in config["repos"]:
        assert repository["repo"] == "local", "versions have one place"
        yield from repository["hooks"]


def test_hooks_run_the_programs_of_make_check() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\nsbom:")[0]
    checked = {*PROGRAM.findall(recipe), "node"}
    assert {program for hook in hooks() for program in PROGRAM.findall(hook["entry"])} == checked
    assert {hook["language"] for hook in hooks()} == {"system"}


def test_slow_hooks_wait_for_a_push() -> None:
    stages = {hook["id"]: hook.get("stages", ["pre-commit"]) for hook in hooks()}
    assert {name for name, stage in stages.items() if stage == ["pre-push"]} == {"tsc", "mypy", "imports"}


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_of_an_issue_is_one_that_github_draws(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "labels", "body"} == form.keys()
    assert all(part["attributes"][FIELDS[part["type"]]] for part in form["body"])
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    names = [part["id"] for part in asked]
    assert len(set(names)) == len(names) and all(re.fullmatch(r"[\w-]+", name) for name in names)
    labels = [part["attributes"]["label"] for part in asked]
    assert len(set(labels)) == len(labels)
    assert any(part.get("validations", {}).get("required") for part in asked)


def test_links_of_forms_lead_to_files_and_headings() -> None:
    texts = [path.read_text() for path in [*FORMS, ROOT / ".github/pull_request_template.md"]]
    links = [link for text in texts for link in re.findall(r"\.\./blob/HEAD/([^)\s]+)", text)]
    assert links
    for name, _, heading in (link.partition("#") for link in links):
        titles = re.findall(r"^#+ (.*)$", (ROOT / name).read_text(), re.MULTILINE)
        assert not heading or heading in {title.lower().replace(" ", "-") for title in titles}
