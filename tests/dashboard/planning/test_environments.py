"""What a launch says about the environment that its nodes will build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dashboard.planning.environments import of_archive, of_selection
from dashboard.planning.resolve import ClusterNodes, check_target
from dashboard.snapshots.archive import pack
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.selection import select
from domain.spec import RunSpec

UV = '[[package]]\nname = "torch"\nversion = "2.9.1"\n[[package]]\nname = "numpy"\nversion = "2.0"\n'


@pytest.mark.parametrize(
    ("files", "choice", "sentence"),
    [
        ({"uv.lock": UV}, "auto", "Each node builds the environment of uv.lock once: 2 packages with torch 2.9.1."),
        (
            {"requirements.txt": "torch"},
            "auto",
            "requirements.txt is no lock: torch has no version. `rankzero freeze` ",
        ),
        ({"gpu.txt": "torch==2.9.1"}, "gpu.txt", "Each node builds the environment of gpu.txt once: 1 package with"),
    ],
)
def test_the_code_says_what_is_built(tmp_path: Path, files: dict[str, str], choice: str, sentence: str) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    for name, text in (files | {"train.py": ""}).items():
        (folder / name).write_text(text)
    selection = select(folder)
    packed = pack(selection, tmp_path / "archive", 10_000_000)
    assert of_selection(selection, "train.py", choice).startswith(sentence)
    assert of_archive(packed.path, "train.py", choice) == of_selection(selection, "train.py", choice)


@pytest.mark.parametrize(
    ("files", "choice", "sentence"),
    [
        (
            {"requirements.txt": "torch"},
            "lock",
            "requirements.txt is no lock: torch has no version. `rankzero freeze` ",
        ),
        ({}, "lock", "There is no uv.lock, pylock.toml or requirements.txt in the run's code: `rankzero freeze` makes"),
        ({}, "gpu.txt", "There is no gpu.txt in the run's code."),
        ({"gpu.txt": "numpy==2.0"}, "gpu.txt", "gpu.txt has no torch"),
    ],
)
def test_a_lock_that_cannot_be_built_is_refused(tmp_path: Path, files: dict[str, str], choice: str, sentence: str):
    for name, text in (files | {"train.py": ""}).items():
        (tmp_path / name).write_text(text)
    with pytest.raises(CodeRefused, match="^environment: " + re.escape(sentence)):
        of_selection(select(tmp_path), "train.py", choice)


def test_a_recipe_has_no_lock() -> None:
    for choice in ("auto", "none", "/opt/env"):
        check_target(RunSpec(target="language_model", environment=choice), ClusterNodes())
    with pytest.raises(CodeRefused, match="environment: There is no uv"):
        check_target(RunSpec(target="language_model", environment="lock"), ClusterNodes())


def test_nothing_is_said_where_nothing_is_built(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    assert [of_selection(select(tmp_path), "train.py", choice) for choice in ("auto", "none", "/opt/env")] == [""] * 3
