"""A word finds the run that people mean by it, and several only where it is not clear which."""

from __future__ import annotations

import pytest

from db.models import Run
from db.runs import run_requests
from db.runs.run_queries import named_runs
from domain.spec import RunSpec

pytestmark = pytest.mark.both_stores


@pytest.fixture
def ids(store):
    """Runs by their labels, in the order in which they were launched."""
    names = {"first": "demo", "second": "demo", "third": "other run", "old": "old"}
    ids = {
        label: run_requests.submit(
            store, RunSpec(target="language_model", name=name, wait_for_nodes=True), now=100.0 + at
        )
        for at, (label, name) in enumerate(names.items())
    }
    with store.write() as session:
        session.get(Run, ids["old"]).archived_at = 200.0
    return ids


def test_id_and_its_unique_beginning_find_a_run(store, ids):
    for label in ("first", "second", "third"):
        assert [run.id for run in named_runs(store, ids[label])] == [ids[label]]
    others = [run_id for label, run_id in ids.items() if label != "third"]
    length = next(n for n in range(1, 11) if not any(run.startswith(ids["third"][:n]) for run in others))
    assert [run.id for run in named_runs(store, ids["third"][:length])] == [ids["third"]]


def test_name_finds_all_runs_of_that_name_newest_first(store, ids):
    assert [run.id for run in named_runs(store, "other run")] == [ids["third"]]
    assert [run.id for run in named_runs(store, "demo")] == [ids["second"], ids["first"]]


def test_latest_is_the_newest_that_is_listed(store, ids):
    assert [run.id for run in named_runs(store, "latest")] == [ids["third"]]


def test_archived_run_is_found_by_its_id_alone(store, ids):
    assert named_runs(store, "old") == []
    assert [run.id for run in named_runs(store, ids["old"])] == [ids["old"]]


@pytest.mark.parametrize("word", ["", "nobody", "%", "_________", "../nodes", "x" * 500, "Ü", "dem\0"])
def test_other_words_find_nothing(store, ids, word):
    assert named_runs(store, word) == []
