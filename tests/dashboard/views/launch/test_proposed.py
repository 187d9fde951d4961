"""The link of a proposal opens the form filled in, and a person launches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from dashboard.planning import proposals
from db.runs import run_queries
from domain.people.rights import Rights
from tests.dashboard.pages import Pages, button, served, texts

AGENT = Rights("ada", via="token agent")


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened:
        opened.seed.node("here", 2, kind="cpu")
        yield opened


def query_of(pages: Pages, spec: dict[str, object], like: str = "", made_at: float | None = None) -> str:
    now = pages.service.clock() if made_at is None else made_at
    path = proposals.path(pages.service.credentials, spec, like, AGENT, now)
    return parse_qs(urlsplit(path).query)[proposals.PARAMETER][0]


def test_a_proposed_run_is_filled_in_and_launched_by_the_person(pages):
    spec = {"target": "image_classifier", "gpus_per_node": 2, "batch_size": 24, "name": "proposed"}
    form = pages.open("launch", proposal=query_of(pages, spec))
    assert not form.exception
    assert "Proposed by token agent of ada" in texts(form)
    assert form.text_input(key="launch_batch_size").value == "24"
    assert run_queries.runs(pages.service.store, pages.service.clock()) == []
    button(form, "Launch").click().run()
    newest = run_queries.runs(pages.service.store, pages.service.clock())[0].spec
    assert (newest.batch_size, newest.name) == (24, "proposed")


def test_what_differs_from_an_earlier_run_is_filled_in_on_top_of_it(pages):
    pages.seed.launch("first", 900, target="image_classifier", gpus_per_node=2, batch_size=32, lr=0.1)
    form = pages.open("launch", proposal=query_of(pages, {"lr": 0.025}, pages.seed.runs["first"]))
    values = [form.text_input(key=f"launch_{name}").value for name in ("batch_size", "lr")]
    assert values == ["32", "0.025"]


@pytest.mark.parametrize("wrong", ["another's", "old", "of a run that is gone", "no spec"])
def test_a_link_that_is_not_good_says_so_and_fills_nothing(pages, wrong):
    spec = {"target": "image_classifier", "batch_size": 24} | ({"lr": -1} if wrong == "no spec" else {})
    like = "gone000000" if wrong == "of a run that is gone" else ""
    text = query_of(pages, spec, like, 1000.0 if wrong == "old" else None)
    form = pages.open("launch", proposal="x" + text if wrong == "another's" else text)
    assert not form.exception
    assert "proposal" in texts(form)
    assert form.text_input(key="launch_batch_size").value == ""
