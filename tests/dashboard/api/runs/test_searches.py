"""Runs are searched, sorted, tagged, noted and archived over HTTP and from the command line."""

from __future__ import annotations

import json

import pytest

from cli import main
from tests.dashboard.running import FakeNode, Running


@pytest.fixture
def ids(dashboard: Running, node: FakeNode) -> dict[str, str]:
    return {
        "low": dashboard.launch(name="low", lr=0.001, project="vision"),
        "high": dashboard.launch(name="high", lr=0.1),
        "own": dashboard.launch(name="own"),
    }


def names(dashboard: Running, **params: str) -> list[str]:
    return [run["name"] for run in dashboard.http.get("/api/runs", params=params).json()]


def test_runs_are_searched_sorted_and_read_in_pages(dashboard: Running, ids: dict[str, str]) -> None:
    assert names(dashboard, filter="lr>0.01") == ["high"]
    assert names(dashboard, filter="-lr>0.01 project:vision") == ["low"]
    assert names(dashboard, sort="-name") == ["own", "low", "high"]
    assert names(dashboard, sort="name", limit="1", offset="1") == ["low"]
    for address in ("/api/runs", "/api/overview"):
        refused = dashboard.http.get(address, params={"filter": "lr>0.1 sate:failed"})
        assert refused.status_code == 422
        assert refused.json() == {
            "detail": {"field": "filter", "message": 'There is no field "sate": did you mean state?'},
            "start": 7, "end": 11,
        }  # fmt: skip
    assert dashboard.http.get("/api/runs?sort=tag").status_code == 422


def test_runs_have_the_best_of_what_is_searched_sorted_by_or_judges_their_project(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    for name, values in (("early", (0.2, 0.9, 0.1)), ("late", (0.1, 0.3, 0.5))):
        dashboard.launch(name=name, project="vision")
        task = node.task()
        node.log_points(task, 0, val__acc=[(step, value, float(step)) for step, value in enumerate(values)])
        node.report(task, "succeeded")

    def best(**params: str) -> list[tuple[str, dict[str, float]]]:
        listed = dashboard.http.get("/api/runs", params=params).json()
        return [(run["name"], run.get("metrics", {})) for run in listed]

    assert best() == [("late", {}), ("early", {})]
    of_both = [("early", {"best:val/acc": 0.9}), ("late", {"best:val/acc": 0.5})]
    assert best(filter="val/acc>0", sort="-best:val/acc") == best(sort="-best:val/acc") == of_both
    assert best(project="vision") == of_both[::-1]
    assert best(filter="val/acc>0.4") == of_both[1:], "a search is about the last value"
    assert main.run(["runs", "--sort", "-best:val/acc", "--project", "vision"]) == 0
    titles, first, second = capsys.readouterr().out.splitlines()
    assert "best val/acc" in titles and [" 0.9 " in first, " 0.5 " in second] == [True, True]


def test_all_runs_of_a_list_are_named_for_what_is_done_to_all(dashboard: Running, ids: dict[str, str]) -> None:
    def named(**params: str) -> list[str]:
        return list(dashboard.http.get("/api/overview/ids", params=params).json())

    assert named(sort="name") == [ids[name] for name in ("high", "low", "own")]
    assert named(filter="name=low") == named(project="vision") == [ids["low"]]
    assert named(attention="true") == [] and len(named(limit="2")) == 2
    assert dashboard.http.get("/api/overview/ids?filter=sate:x").status_code == 422


def test_the_word_at_the_cursor_is_completed(dashboard: Running, ids: dict[str, str]) -> None:
    dashboard.http.patch(f"/api/runs/{ids['low']}", json={"add_tags": ["Paper", "p%", "other"]})
    expected = {
        "project:VIS": (0, ["project:vision"]), "lr>1 tag:P": (5, ["tag:Paper", "tag:p%"]),
        "tag:%": (0, ["tag:p%"]), "node:zz": (0, []), "-archived:y": (1, ["archived:yes"]),
    }  # fmt: skip
    for search, (start, texts) in expected.items():
        completion = dashboard.http.get("/api/search/completions", params={"filter": search}).json()
        assert [proposal["text"] for proposal in completion["proposals"]] == texts
        assert (completion["start"], completion["end"]) == (start, len(search))
    assert dashboard.anonymous().get("/api/search/completions").status_code == 401


def test_columns_are_chosen_and_views_are_saved(dashboard: Running, ids: dict[str, str]) -> None:
    params = {"column": ["lr", "target", "archived", "best:val/loss"], "sort": "-lr"}
    table = dashboard.http.get("/api/overview", params=params).json()
    kinds = [(column["key"], column["kind"]) for column in table["columns"]]
    assert kinds == [
        ("lr", "number"),
        ("target", "text"),
        ("archived", "yes or no"),
        ("best:val/loss", "series"),
    ]
    assert (table["runs"][0]["name"], table["runs"][0]["values"][0], table["runs"][0]["values"][3]) == (
        "high",
        0.1,
        None,
    )
    refused = dashboard.http.get("/api/overview", params={"column": "lrr"})
    assert refused.status_code == 422 and refused.json()["detail"]["field"] == "column"
    assert "batch_size" in dashboard.http.get("/api/search/columns?text=batch").json()
    view = {
        "name": "mine",
        "filter": "lr>1",
        "states": ["failed"],
        "project": None,
        "columns": ["lr"],
        "sort": "-lr",
    }
    assert dashboard.http.put("/api/views", json=view).json() == [view] == dashboard.http.get("/api/views").json()
    assert dashboard.http.put("/api/views", json={"name": ""}).status_code == 422
    assert dashboard.http.delete("/api/views?name=mine").json() == []
    assert dashboard.anonymous().get("/api/views").status_code == 401


def test_a_run_is_renamed_moved_tagged_noted_and_archived(dashboard: Running, ids: dict[str, str]) -> None:
    address = f"/api/runs/{ids['low']}"
    change = {
        "name": "lower",
        "project": "text",
        "note": "<b>why</b>\nso",
        "pinned": True,
        "add_tags": ["b", "a"],
    }
    edited = dashboard.http.patch(address, json=change).json()
    assert {name: edited[name] for name in ("name", "project", "note", "pinned", "archived", "tags")} == {
        "name": "lower", "project": "text", "note": "<b>why</b>\nso", "pinned": True, "archived": False,
        "tags": ["a", "b"],
    }  # fmt: skip
    assert names(dashboard, filter="tag:A pinned:yes why") == ["lower"]
    edited = dashboard.http.patch(address, json={"archived": True, "note": "", "remove_tags": ["a", "c"]}).json()
    assert (edited["archived"], edited["note"], edited["tags"]) == (True, None, ["b"])
    assert names(dashboard) == ["own", "high"] and names(dashboard, filter="archived:yes") == ["lower"]
    history = dashboard.http.get(f"{address}/history").json()
    assert {line["by"] for line in history[-8:]} == {"owner"}
    assert [line["text"] for line in history[-8:]] == [
        "renamed from low to lower", "moved from project vision to text", "note written", "pinned", "tags +a +b",
        "note removed", "archived", "tags -a",
    ]  # fmt: skip
    dashboard.http.patch(address, json={"note": "", "pinned": True, "remove_tags": ["c"]})
    assert dashboard.http.get(f"{address}/history").json() == history, "what changes nothing is not in it"
    for wrong in ({"add_tags": ["two words"]}, {"name": ""}, {"colour": "red"}, {"note": "\0"}):
        assert dashboard.http.patch(address, json=wrong).status_code == 422
    assert dashboard.http.patch("/api/runs/aaaaaaaaaa", json={"note": "x"}).status_code == 404


def test_the_command_line_searches_tags_notes_and_archives(
    dashboard: Running,
    ids: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

    def rankzero(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.run(list(arguments))
        return (code, *capsys.readouterr())

    listed = json.loads(rankzero("runs", "--filter", "lr<1 -name:own", "--sort", "-lr", "--limit", "2000", "--json")[1])
    assert [run["name"] for run in listed] == ["high", "low"]
    code, _, error = rankzero("runs", "--filter", "lr<1 sate:failed")
    assert (code, error.splitlines()) == (2, [
        "lr<1 sate:failed", "     ^^^^", 'There is no field "sate": did you mean state?'
    ])  # fmt: skip
    assert json.loads(rankzero("tag", ids["own"], "+paper", "+x", "--json")[1])["tags"] == ["paper", "x"]
    assert rankzero("tag", ids["own"], "-paper")[1] == f"Tags of run {ids['own']}: x.\n"
    assert rankzero("tag", ids["own"], "paper")[0] == 2
    assert json.loads(rankzero("note", ids["own"], "why", "--json")[1])["note"] == "why"
    assert rankzero("baseline", ids["low"])[1] == f"Run {ids['low']} is the baseline of project vision now.\n"
    assert names(dashboard, filter="baseline:yes") == ["low"]
    assert "baseline of project vision" in " ".join(rankzero("show", ids["low"])[1].split())
    assert json.loads(rankzero("baseline", ids["low"], "--clear", "--json")[1])["baseline"] is False
    archived = json.loads(rankzero("archive", ids["own"], ids["low"], "--json")[1])
    assert [run["archived"] for run in archived] == [True, True]
    assert rankzero("archive", ids["low"], "--undo")[1] == "1 run unarchived.\n"
    assert rankzero("runs", "--filter", "archived:yes state:failed")[1] == "No run matches.\n"
