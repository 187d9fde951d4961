"""A text is looked for in the logs of many runs: over HTTP, by command, and a stretch of time after another."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from dashboard.api.runs import logs
from dashboard.logs import search
from dashboard.logs.search import RunsSearcher
from db.runs.run_list import RunSelection
from tests.dashboard.running import LIMIT_S, Running
from tests.dashboard.seeded_store import Seed

BEST = "reached Bingo"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is not cut off where this machine stands still."""
    monkeypatch.setattr(logs, "RunsSearcher", partial(RunsSearcher, seconds=LIMIT_S))
    monkeypatch.setattr(search, "MOST_SECONDS", LIMIT_S)


@pytest.fixture(scope="module")
def made(shared: Running) -> dict[str, str]:
    """Three runs: one printed the text on two ranks, one in one line of many, one not at all; ids by name."""
    seed = Seed(shared.service.store, shared.service.clock())
    seed.node("gpu-1", 4)
    for number, name in enumerate(("two ranks", "long", "silent")):
        seed.launch(name, 900 - number, gpus_per_node=1, lr=0.1 if name == "silent" else 0.2)
    files = shared.service.files
    seed.file(files, "two ranks", "logs/rank0.out", b"start\nnow it REACHED bingo\n")
    seed.file(files, "two ranks", "logs/rank1.err", b"reached bingo\nreached bingo, reached bingo\n")
    seed.file(files, "long", "logs/rank0.out", b"nothing here\n" * 400 + BEST.encode() + b" at last\n" + b"x\n" * 50)
    seed.file(files, "silent", "logs/launcher.err", b"reached\nBingo\n")
    seed.file(files, "silent", "logs-of-others", BEST.encode())
    return seed.runs


def searched(shared: Running, **query: str) -> Any:
    answer = shared.http.get("/api/logs/search", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_runs_that_printed_a_text_are_found_with_their_first_line(shared, made):
    search_page = searched(shared, q=BEST)
    assert (search_page["searched"], search_page["total"], search_page["after"]) == (3, 3, None)
    long, two = search_page["runs"]
    assert (long["id"], long["name"], long["lines"]) == (made["long"], "long", 1)
    assert long["first"] == {
        "attempt": 1, "rank": 0, "stream": "out", "line": 401, "offset": 400 * 13, "text": "reached Bingo at last",
    }  # fmt: skip
    assert two["lines"] == 3 and two["first"]["text"] == "now it REACHED bingo"
    assert searched(shared, q=BEST, filter="lr<0.15") == {
        "runs": [],
        "searched": 1,
        "total": 1,
        "after": None,
    }


def test_a_search_without_time_goes_on_where_it_ended(shared, made, monkeypatch):
    monkeypatch.setattr(search, "STRETCH_BYTES", 64)
    lines: dict[str, int] = {}
    runs, after, answers = 0, None, 0
    while answers == 0 or after:
        searcher = RunsSearcher(shared.service.store, shared.service.files, BEST, seconds=0)
        search_page = searcher.search(RunSelection(), shared.service.clock(), after)
        for run in search_page.runs:
            lines[run.name] = lines.get(run.name, 0) + run.lines
        runs, after, answers = runs + search_page.searched, search_page.after, answers + 1
    assert lines == {"long": 1, "two ranks": 3}
    assert runs == 3 and answers > 5400 / 64


@pytest.mark.parametrize(
    ("query", "words"),
    [({"after": "[1]"}, "after must be"), ({"filter": "sate:x"}, "state"), ({"q": ""}, "")],
)
def test_an_odd_search_is_refused(shared, query, words):
    answer = shared.http.get("/api/logs/search", params={"q": "x"} | query)
    assert answer.status_code == 422 and words in answer.text


def test_the_command_lists_runs_and_lines(rankzero, made):
    code, out, err = rankzero("logs", "--search", BEST, "--json")
    search_page = json.loads(out)
    assert (code, err, search_page["is_complete"]) == (0, "", True)
    assert [run["id"] for run in search_page["runs"]] == [made["long"], made["two ranks"]]
    code, out, err = rankzero("logs", "--search", BEST, "--filter", "two")
    assert "attempt 1, rank0.out:2" in out and "1 run of 1 searched printed it." in out
    code, out, err = rankzero("logs", made["two ranks"], "--search", BEST)
    assert out.splitlines() == [
        "rank0.out:2: now it REACHED bingo", "rank1.err:1: reached bingo",
        "rank1.err:2: reached bingo, reached bingo",
    ]  # fmt: skip
    assert rankzero("logs")[0] == 2 and rankzero("logs", made["long"], "--filter", "x")[0] == 2
