"""What a release is made of: the licence, and one version everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from cli.fleet import own_wheel

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


RELEASING = (ROOT / "docs/RELEASING.md").read_text()


def test_steps_of_a_release_name_targets_and_files_that_are_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"`make ([a-z-]+)", RELEASING)
    assert len(named) > 5 and set(named) <= set(targets)
    files = re.findall(r"`((?:domain|db|tests|docs)/[\w./-]+)`", RELEASING)
    assert len(files) > 1 and [file for file in files if not (ROOT / file).exists()] == []
