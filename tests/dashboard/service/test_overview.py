"""The table of runs as the browser asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.service import overview as overviews
from dashboard.service.overview import Filter, overview
from domain.messages import State
from tests.dashboard.pages import Pages, served
from tests.dashboard.running import Running
from tests.dashboard.seeded_store import HOSTILE_NAME, seed


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as pages:
        pages.seed = seed(pages.service.store, pages.service.clock())
        yield pages


def rows(pages: Pages, wanted: Filter = overviews.EVERYTHING) -> list[dict[str, object]]:
    return list(overview(pages.service.store, pages.service.clock(), wanted)["runs"])


def test_runs_with_trouble_come_first_then_what_trains_what_failed_what_waits_and_the_rest(full):
    found = rows(full)
    assert [row["name"] for row in found] == [
        "nan at once", "just launched", "being stopped", "gpt wide, long warm-up", "bad labels",
        "waits for room", HOSTILE_NAME, "digits baseline",
    ]  # fmt: skip
    by_name = {row["name"]: row for row in found}
    assert by_name["nan at once"]["attention"] == "NaN loss"
    assert by_name["nan at once"]["note"] == "the loss is NaN since step 50"
    assert by_name["waits for room"]["note"].startswith("needs 4 GPUs on one node, none is free; ")
    assert by_name["bad labels"]["note"].startswith("script error: Rank 1 raised ValueError")
    assert by_name["bad labels"]["attention"] == "failed"
    assert len(by_name["digits baseline"]["curve"]) > 10


def test_a_long_queue_leaves_room_for_all_other_runs(full, monkeypatch):
    monkeypatch.setattr(overviews, "MOST_ROWS", 4)
    monkeypatch.setattr(overviews, "MOST_QUEUED", 2)
    for number in range(5):
        full.seed.launch(f"queued {number}", 5 - number / 2, gpus_per_node=8)
    found = overview(full.service.store, full.service.clock())
    names = [row["name"] for row in found["runs"]]
    assert names == [
        "nan at once", "just launched", "being stopped", "gpt wide, long warm-up", "queued 4", "queued 3",
    ]  # fmt: skip
    assert (found["queued"], found["is_cut"]) == (6, True)


def test_filters_are_the_servers(full):
    assert [row["name"] for row in rows(full, Filter("gpt"))] == ["gpt wide, long warm-up"]
    assert [row["name"] for row in rows(full, Filter(states=(State.QUEUED,)))] == ["waits for room"]
    assert [row["name"] for row in rows(full, Filter(states=(State.FAILED,), project="vision"))] == [
        "bad labels"
    ]
    assert rows(full, Filter("%", project="vision")) == []


def test_browsers_that_ask_again_are_told_that_nothing_changed(dashboard: Running, node):
    run_id = dashboard.launch(name="one")
    answer = dashboard.http.get("/api/overview", params={"state": ["queued", "starting"], "q": "one"})
    assert [run["id"] for run in answer.json()["runs"]] == [run_id]
    tag = {"If-None-Match": answer.headers["etag"]}
    again = dashboard.http.get(
        "/api/overview", params={"state": ["starting", "queued"], "q": "one"}, headers=tag
    )
    assert again.status_code == 304 and "date" in again.headers
    assert dashboard.http.get("/api/overview?state=lost").status_code == 422
    assert dashboard.anonymous().get("/api/overview").status_code == 401
