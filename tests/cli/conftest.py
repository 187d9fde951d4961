"""The command line against a fake dashboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import main
from tests.dashboard.fake_dashboard import TOKEN, FakeDashboard, serving


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeDashboard]:
    monkeypatch.chdir(tmp_path)
    with serving(FakeDashboard()) as fake:
        monkeypatch.setenv("RANKZERO_URL", fake.url)
        monkeypatch.setenv("RANKZERO_TOKEN", TOKEN)
        yield fake


@pytest.fixture
def rankzero(capfd: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main.run(list(arguments))
        return code, *capfd.readouterr()

    return run
