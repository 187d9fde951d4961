"""The folder in which TensorBoard's sockets lie."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def near_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the program has it: the path of a socket may be about a hundred bytes long."""
    monkeypatch.chdir(tmp_path)
