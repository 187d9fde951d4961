"""What a release is made of: the licence, and one version everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cli.fleet import own_wheel
from tests.test_project import installed_below

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout without its packages, built as a release is."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(made)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (path,) = made.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_carries_the_licence_and_names_it(wheel: zipfile.ZipFile) -> None:
    about = f"rankzero-{PROJECT['version']}.dist-info"
    assert wheel.read(f"{about}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    described = Parser().parsestr(wheel.read(f"{about}/METADATA").decode())
    assert (described["License-Expression"], described["License-File"]) == ("Apache-2.0", "LICENSE")
    assert described["Version"] == PROJECT["version"]


def test_the_licence_is_complete() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    sections = re.findall(r"^ {3}(\d)\. ", text, re.MULTILINE)
    assert sections == list("123456789") and "END OF TERMS AND CONDITIONS" in text


def test_the_changelog_ends_its_newest_release_at_the_version_of_the_package() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == PROJECT["version"]


def test_nodes_get_the_licence_with_the_wheel(
    wheel: zipfile.ZipFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel.extractall(tmp_path / "installed")
    monkeypatch.syspath_prepend(tmp_path / "installed")
    with zipfile.ZipFile(own_wheel.write_wheel(tmp_path)) as sent:
        about = f"rankzero-{PROJECT['version']}.dist-info"
        assert sent.read(f"{about}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


WATCHING = (
    "cli.commands.anywhere.companion, cli.commands.anywhere.sync, worker.watched.companion, worker.attempt.supervisor"
)


def test_what_watches_commands_imports_nothing_beyond_the_extra_watch() -> None:
    argv = [
        sys.executable,
        "-P",
        "-c",
        f"import sys; own = {{*sys.modules}}; import {WATCHING}; print(*{{*sys.modules}} - own)",
    ]
    modules = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    listed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["watch"]]
    named = {canonicalize_name(Requirement(text).name) for text in listed}
    providers = metadata.packages_distributions()
    allowed = {"rankzero", *named, *(below for name in named for below in installed_below(name))}
    owners = {
        name: {canonicalize_name(owner) for owner in providers.get(name.partition(".")[0], ())} for name in modules
    }
    assert {name for name, of in owners.items() if of and not of & allowed} == set()
    assert {"psutil", "pynvml", "httpx2"} <= owners.keys() and not {"uv", "torch", "numpy", "asyncio"} & owners.keys()


RELEASING = (ROOT / "docs/RELEASING.md").read_text()


def test_steps_of_a_release_name_targets_and_files_that_are_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"`make ([a-z-]+)", RELEASING)
    assert len(named) > 5 and set(named) <= set(targets)
    files = re.findall(r"`((?:domain|db|tests|docs)/[\w./-]+)`", RELEASING)
    assert len(files) > 1 and [file for file in files if not (ROOT / file).exists()] == []
