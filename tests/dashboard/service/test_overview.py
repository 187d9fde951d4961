"""The table of runs as the browser asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboard.service import overview as overviews
from dashboard.service.overview import Filter, RowRange, overview
from domain.messages import State
from domain.spec import RunEdit
from tests.dashboard.pages import Pages, served_full
from tests.dashboard.running import Running
from tests.dashboard.seeded_store import HOSTILE_NAME


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Pages]:
    with served_full(tmp_path / "data") as pages:
        yield pages


def rows(pages: Pages, wanted: Filter = overviews.EVERYTHING) -> list[dict[str, object]]:
    return list(overview(pages.service.store, pages.service.clock(), wanted)["runs"])


def test_runs_with_trouble_come_first_then_what_trains_what_failed_what_waits_and_the_rest(full):
    page = rows(full)
    assert [row["name"] for row in page] == [
        "nan at once", "just launched", "being stopped", "gpt wide, long warm-up", "bad labels",
        "waits for room", HOSTILE_NAME, "digits baseline",
    ]  # fmt: skip
    by_name = {row["name"]: row for row in page}
    assert by_name["nan at once"]["attention"] == "NaN loss"
    assert by_name["nan at once"]["note"] == "the loss is NaN since step 50"
    assert by_name["waits for room"]["note"].startswith("needs 4 GPUs on one node, none is free; ")
    assert by_name["bad labels"]["note"].startswith("script error: Rank 1 raised ValueError")
    assert by_name["bad labels"]["attention"] == "failed"
    assert len(by_name["digits baseline"]["curve"]) > 10


def test_a_column_of_a_series_has_its_change_to_the_projects_baseline(full):
    service, ids = full.service, full.seed.runs
    service.edit(ids["gpt wide, long warm-up"], RunEdit(baseline=True))
    window = RowRange(columns=("min:train/loss", "lr"))
    page = overview(service.store, service.clock(), window=window)["runs"]
    by_id = {row["id"]: row for row in page}
    own, base = by_id[ids["digits baseline"]], by_id[ids["gpt wide, long warm-up"]]
    expected = 100 * (own["values"][0] / base["values"][0] - 1)
    assert own["changes"] == [pytest.approx(expected), None]
    assert base["changes"] == [None, None], "itself"
    assert by_id[ids["bad labels"]]["changes"] == [None, None], "another project, which has none"


def test_a_long_queue_leaves_room_for_all_other_runs(full, monkeypatch):
    monkeypatch.setattr(overviews, "FEW_QUEUED", 2)
    for number in range(5):
        full.seed.launch(f"queued {number}", 5 - number / 2, gpus_per_node=8)
    page = overview(full.service.store, full.service.clock(), window=RowRange(limit=8))
    names = [row["name"] for row in page["runs"]]
    assert names == [
        "nan at once", "just launched", "being stopped", "gpt wide, long warm-up", "bad labels", "queued 4",
        "queued 3", HOSTILE_NAME,
    ]  # fmt: skip
    assert (page["fold"], page["folded"], page["total"]) == (7, 4, 9)
    assert (page["queued"], page["live"], page["ended"], page["is_cut"]) == (6, 4, 3, True)


def test_windows_of_any_size_make_up_the_same_list(full):
    for number in range(9):
        full.seed.launch(f"queued {number}", 5 - number / 2, gpus_per_node=8)
    change = RunEdit(pinned=True)
    for name in ("digits baseline", "queued 3"):
        full.service.edit(full.seed.runs[name], change)
    store, now = full.service.store, full.service.clock()
    for wanted in (RowRange(), RowRange(is_queue_unfolded=True), RowRange("name"), RowRange("-loss")):
        for run_filter in (
            overviews.EVERYTHING,
            Filter(needs_attention=True),
            Filter(states=(State.QUEUED,)),
        ):
            whole = overview(store, now, run_filter, wanted)
            tasks = [
                overview(store, now, run_filter, wanted._replace(offset=offset, limit=3))["runs"]
                for offset in range(0, whole["total"], 3)
            ]
            shown = [row["id"] for row in whole["runs"]]
            assert [row["id"] for task in tasks for row in task] == shown and len(shown) == whole["total"]
    assert [row["name"] for row in rows(full)][:3] == ["queued 3", "digits baseline", "nan at once"]


def test_archived_runs_are_listed_where_they_are_searched_for(full):
    full.service.edit(
        full.seed.runs["bad labels"],
        RunEdit(archived=True, add_tags=["old"], note="wrong labels"),
    )
    assert "bad labels" not in [row["name"] for row in rows(full)]
    (row,) = rows(full, Filter(search="archived:yes tag:old"))
    assert (row["name"], row["tags"], row["own_note"]) == ("bad labels", ["old"], "wrong labels")


def test_filters_are_the_servers(full):
    assert [row["name"] for row in rows(full, Filter("gpt"))] == ["gpt wide, long warm-up"]
    assert [row["name"] for row in rows(full, Filter(states=(State.QUEUED,)))] == ["waits for room"]
    assert [row["name"] for row in rows(full, Filter(states=(State.FAILED,), project="vision"))] == ["bad labels"]
    assert rows(full, Filter("%", project="vision")) == []


def test_browsers_that_ask_again_are_told_that_nothing_changed(dashboard: Running, node):
    run_id = dashboard.launch(name="one")
    answer = dashboard.http.get("/api/overview", params={"state": ["queued", "starting"], "q": "one"})
    assert [run["id"] for run in answer.json()["runs"]] == [run_id]
    tag = {"If-None-Match": answer.headers["etag"]}
    again = dashboard.http.get("/api/overview", params={"state": ["starting", "queued"], "q": "one"}, headers=tag)
    assert again.status_code == 304 and "date" in again.headers
    assert dashboard.http.get("/api/overview?state=lost").status_code == 422
    assert dashboard.anonymous().get("/api/overview").status_code == 401
