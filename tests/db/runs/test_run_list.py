"""The list of runs reads many runs at once as it would read each alone, and looks at few rows for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.runs import run_list, run_queries
from db.runs.run_list import RunList, RunSelection
from db.search.run_search import words
from domain.messages import State
from domain.people.rights import PROGRAM, Rights
from domain.people.roles import Role
from domain.search.parser import parse
from tests.db.search.searched_runs import NOW, fill
from tests.db.statements import statements

pytestmark = pytest.mark.both_stores

COUNT = 40


def test_many_runs_read_at_once_are_what_each_is_alone(store: Store):
    fill(store, 1, COUNT)
    with store.read() as session:
        listed = RunList(session, RunSelection(), NOW).page(None, 0, COUNT)
    assert len({run.id for run in listed}) == len(listed) > COUNT / 2
    for run in listed:
        alone = run_queries.run(store, run.id, NOW)
        assert alone
        assert repr(replace(alone, attempt_changes=[], against_baseline=None)) == repr(run), "a text, for nan != nan"


def test_the_runs_of_no_attempts_take_no_statement(sqlite_store: Store):
    with sqlite_store.read() as session, statements(sqlite_store) as plans:
        assert RunList(session, RunSelection(), NOW).views([]) == []
    assert plans == []


MEMBER = Rights("ana", everywhere=Role.MEMBER, private=frozenset({"vision", "text"}))


@pytest.mark.parametrize("rights", [PROGRAM, MEMBER], ids=["owner", "member without two private projects"])
def test_a_list_counts_and_orders_runs_by_an_index_that_has_all_it_needs(sqlite_store: Store, rights: Rights):
    for read in (
        lambda runs: runs.total(),
        lambda runs: runs.counts(),
        lambda runs: runs.fences(None, 0, 30),
        lambda runs: runs.fences(None, 0, 30, [State.QUEUED], ["run1"]),
    ):
        with acting.acting(rights):
            assert "SCAN runs USING COVERING INDEX listed_runs" in plan(sqlite_store, read)


def test_runs_that_may_be_urgent_are_looked_up_by_their_ids(sqlite_store: Store):
    steps = plan(sqlite_store, lambda runs: runs.urgent(100))
    assert any(line.startswith("SEARCH runs USING INDEX") and "(id=?)" in line for line in steps)
    assert "SCAN runs_1 USING INDEX pinned_runs" in steps, "pinned ones, without looking at all others"


def test_runs_that_have_not_ended_are_counted_by_their_states(sqlite_store: Store):
    steps = plan(sqlite_store, lambda runs: runs.not_ended())
    assert "SEARCH attempts USING INDEX ix_attempts_state (state=?)" in steps
    assert not any(line.startswith("SCAN") for line in steps)


@pytest.mark.parametrize("search", ["", "state:running", "-tag:paper", "archived:yes lr<1"])
@pytest.mark.parametrize("states", [(), (State.QUEUED, State.FAILED)])
@pytest.mark.parametrize("text", ["", "gpt"])
def test_all_ways_of_counting_agree(sqlite_store: Store, search: str, states: tuple[State, ...], text: str):
    fill(sqlite_store, 2, COUNT)
    with sqlite_store.read() as session:
        runs = RunList(session, RunSelection(parse(search, NOW), text, states), NOW)
        counts = runs.counts()
        assert runs.total() == counts.total() == len(runs.page(None, 0, COUNT))
        assert runs.not_ended() == {state: count for state, count in counts.items() if not state.is_terminal}


def plan(store: Store, read: Callable[[RunList], object]) -> list[str]:
    """The lines of SQLite's plans for what is read of the list."""
    with store.read() as session, statements(store) as made:
        read(RunList(session, RunSelection(), NOW))
    with store.read() as session:
        return [line for one in made for line in explained(session, *one)]


def explained(session: Session, statement: str, values: tuple[object, ...]) -> list[str]:
    rows = session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
    return [row.detail for row in rows]


def test_runs_are_found_by_who_launched_them(cluster):
    runs = {}
    for name in ("ana", "ivo"):
        with acting.acting(Rights(name, everywhere=Role.MEMBER)):
            runs[name] = cluster.launch()

    def found(text: str, name: str = "ana") -> list[str]:
        with acting.acting(Rights(name, everywhere=Role.MEMBER)):
            selection = RunSelection(parse(text, cluster.now))
            return [run.id for run in run_list.listed(cluster.store, cluster.now, selection, None, 10)]

    assert found("by:ana") == found("by:ANA") == [runs["ana"]]
    assert found("by:me") == [runs["ana"]] and found("by:me", "ivo") == [runs["ivo"]]
    assert found("-by:me") == [runs["ivo"]] and found("by:eve") == []
    assert run_list.listed(cluster.store, cluster.now, RunSelection(parse("by:me", 0)), None, 10) == []
    assert words(cluster.store, "by", "A") == ["ana"]
