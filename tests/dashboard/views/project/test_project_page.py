"""The page of a project, full, unknown and without a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from db.runs import projects, run_requests
from domain.spec import RunEdit
from tests.dashboard.pages import Pages, links, served_full, texts


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Pages]:
    with served_full(tmp_path / "data") as pages:
        yield pages


def drawn(page: Any, component: str) -> dict[str, Any]:
    parts = [p for p in page.get("bidi_component") if p.proto.component_name == f"rankzero.{component}"]
    return dict(json.loads(parts[0].proto.json))


def test_a_project_shows_its_runs_and_figures(full: Pages) -> None:
    page = full.open("project", name="default")
    assert not page.exception
    figures = {one["label"]: one for one in drawn(page, "project")["figures"]}
    assert figures["Baseline"]["value"] == "–" and figures["Baseline"]["more"] == "No baseline yet"
    assert figures["Best run"]["value"].startswith("val/loss 0.")
    assert len(drawn(page, "project")["weeks"]) == projects.WEEKS
    assert drawn(page, "runs_table")["project"] == "default"
    best = figures["Best run"]["address"].removeprefix("run?id=")
    assert links(page) == {"Launch": f"launch?from={best}"}


def test_the_best_run_is_compared_with_the_baseline(full: Pages) -> None:
    baseline = full.seed.runs["digits baseline"]
    run_requests.edit(full.service.store, baseline, RunEdit(baseline=True), full.service.clock())
    page = full.open("project", name="default")
    figures = {one["label"]: one for one in drawn(page, "project")["figures"]}
    assert figures["Baseline"]["address"] == f"run?id={baseline}"
    assert figures["Best run"]["more"].endswith(("better", "the baseline"))
    best = figures["Best run"]["address"].removeprefix("run?id=")
    address = links(page).get("Compare best with baseline")
    assert address == (None if best == baseline else f"compare?runs={best}%2C{baseline}&baseline={baseline}")


def test_an_unknown_project_says_so(full: Pages) -> None:
    for query in ({"name": "<b>nothing</b>"}, {}):
        page = full.open("project", **query)
        assert not page.exception and page.title[0].value == "There is no such project"
        assert links(page) == {"All runs": "./"}


def test_without_a_store_the_page_says_so(full: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError("select", {}, Exception("disk I/O error"))

    monkeypatch.setattr(projects, "project", away)
    page = full.open("project", name="default")
    assert not page.exception and "store" in texts(page)
