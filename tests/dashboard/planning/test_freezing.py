"""The packages of a Python as a lock: all versions, the index of torch's build, nothing that only this machine has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dashboard.planning.environments import of_selection
from dashboard.planning.freezing import CannotFreeze, freeze
from dashboard.snapshots.selection import select
from tests.worker.launch.environments import venv


def test_a_frozen_environment_is_a_lock_that_nodes_build(tmp_path: Path) -> None:
    frozen = freeze(Path(sys.executable), tmp_path / "requirements.txt")
    lines = (tmp_path / "requirements.txt").read_text().splitlines()
    assert any(line.startswith("torch==") for line in lines)
    if any("+cpu" in line for line in lines):
        assert "--extra-index-url https://download.pytorch.org/whl/cpu" in lines
    assert any("rankzero" in line or str(Path(__file__).parents[3]) in line for line in frozen.left_out)
    assert not any("file:" in line for line in lines)
    assert of_selection(select(tmp_path), None, "auto").startswith("Each node builds the environment of requirements")


def test_what_cannot_be_frozen_is_said(tmp_path: Path) -> None:
    target = tmp_path / "requirements.txt"
    with pytest.raises(CannotFreeze, match="has no packages"):
        freeze(venv(tmp_path / "empty") / "bin" / "python", target)
    with pytest.raises(CannotFreeze, match="cannot be listed"):
        freeze(tmp_path / "nothing", target)
    assert not target.exists()
    target.write_text("mine")
    with pytest.raises(CannotFreeze, match="exists already"):
        freeze(Path(sys.executable), target)
    assert target.read_text() == "mine"
