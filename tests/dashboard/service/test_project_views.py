"""All who look at a project share what was read of it, for as long as it cost to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.service.project_views import ProjectViews
from db.queries import projects
from db.records.exceptions import NoSuchProject
from tests.dashboard.pages import served


def test_a_project_is_read_once_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent, clock, read = [0.0], [100.0], list[str]()

    def reading(store: object, name: str, now: float) -> projects.ProjectView:
        read.append(name)
        spent[0] += 0.3
        return original(store, name, now)  # type: ignore[arg-type]

    original = projects.project
    monkeypatch.setattr(projects, "project", reading)
    with served(tmp_path / "data") as pages:
        pages.seed.node("gpu-1", 1)
        pages.seed.launch("one", 10, project="paper")
        views, store = ProjectViews(lambda: clock[0], lambda: spent[0]), pages.service.store
        first = views.latest(store, "paper", 0.0)
        clock[0] += 5.9
        assert views.latest(store, "paper", 0.0) is first and read == ["paper"]
        clock[0] += 0.2
        assert views.latest(store, "paper", 0.0) is not first and len(read) == 2
        with pytest.raises(NoSuchProject):
            views.latest(store, "none", 0.0)
