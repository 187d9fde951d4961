"""Import into a running dashboard with the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli import main
from tests.dashboard.running import Running

Import = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def imported(dashboard: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Import:
    """Import a path; returns the command's JSON."""
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

    def run(path: Path, *options: str) -> list[dict[str, Any]]:
        assert main.run(["import", str(path), "--json", *options]) == 0
        return list(json.loads(capsys.readouterr().out))

    return run
