"""The SQL of a search finds exactly the runs that its definition in `searched_matching` finds."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from db.engine import Store
from db.models import Attempt, Run
from db.search import run_search
from domain.messages import State
from domain.search.fields import FIELDS, parse_sort
from domain.search.parser import as_text, parse
from domain.search.query import FieldKind
from tests.db.search.searched_matching import matches
from tests.db.search.searched_runs import IMPORTERS, NODES, NOW, NUMBERS, SERIES, TAGS, WORDS, Records, fill

pytestmark = pytest.mark.both_stores

COUNT = 40
COMPARISONS = st.sampled_from(["<", "<=", ">", ">=", "=", "!=", ":", ":<", ":>="])
FINITE = st.sampled_from([repr(number) for number in NUMBERS if abs(number) < 1e9] + ["1e-3", "7", "2", "-1"])
TEXTS = st.sampled_from([*WORDS, *TAGS, *NODES, "train_v2", "_", "%", "O", "GRÖSSE", "bf16", "end", "vision", "error"])
of_kind = {kind: st.sampled_from([name for name in FIELDS if FIELDS[name] is kind]) for kind in set(FIELDS.values())}
quoted = TEXTS.map(lambda text: f'"{text}"')
conditions = st.one_of(
    st.tuples(of_kind[FieldKind.NUMBER], COMPARISONS, FINITE),
    st.tuples(st.sampled_from(SERIES).map(lambda name: f'"{name}"'), COMPARISONS, FINITE),
    st.tuples(st.sampled_from(["state"]), st.sampled_from([":", "=", "!="]), st.sampled_from([*State]).map(str)),
    st.tuples(of_kind[FieldKind.NAME].filter(lambda name: name != "state"), st.sampled_from([":", "!="]), quoted),
    st.tuples(st.just("imported"), st.sampled_from([":", "=", "!="]), st.sampled_from(["yes", "No", *IMPORTERS, "x"])),
    st.tuples(of_kind[FieldKind.TEXT], st.sampled_from([":", "=", "!="]), quoted),
    st.tuples(of_kind[FieldKind.FLAG], st.sampled_from([":", "!="]), st.sampled_from(["yes", "no"])),
    st.tuples(
        of_kind[FieldKind.MOMENT],
        st.sampled_from(["<", ":>=", ":<"]),
        st.sampled_from(["2d", "9h", "1970-01-05"]),
    ),
    st.tuples(of_kind[FieldKind.DURATION], st.sampled_from(["<", ">"]), st.sampled_from(["2h", "3d", "1.5d"])),
    st.tuples(quoted),
).map("".join)  # fmt: skip
terms = st.tuples(st.sampled_from(["", "", "-", "not ", "not -"]), conditions).map("".join)
queries = st.lists(st.lists(terms, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=3).map(" or ".join)


@pytest.fixture
def records(store: Store) -> Records:
    return fill(store, 1, COUNT)


def searched(store: Store, text: str, sort: str = "") -> list[str]:
    newest = select(func.max(Attempt.fence)).group_by(Attempt.run_id)
    query = select(Run.id).join(Attempt, Attempt.run_id == Run.id).where(Attempt.fence.in_(newest))
    query = query.where(run_search.matches(parse(text, NOW), NOW))
    with store.read() as session:
        return list(session.scalars(query.order_by(*run_search.in_order(parse_sort(sort), NOW))))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=queries)
def test_sql_finds_what_the_definition_finds(store: Store, records: Records, text: str) -> None:
    query = parse(text, NOW)
    assert set(searched(store, text)) == {run_id for run_id, record in records.items() if matches(query, record)}


def test_every_search_of_one_field_divides_the_runs(store: Store, records: Records) -> None:
    for text in (
        "lr>0.01",
        "val/loss<0.5",
        "tag:paper",
        "node:gpu-3",
        "started:<3d",
        "archived:yes",
        "imported:yes",
        "imported:wandb",
        "gpt",
    ):
        matching, other = searched(store, text), searched(store, f"-{text}")
        assert matching and other and sorted(matching + other) == sorted(records)


def test_words_as_they_stand_find_what_holds_them(store: Store, records: Records) -> None:
    assert searched(store, as_text("100%")) == searched(store, '"100%"') != []
    assert parse(as_text('a "b" c'), NOW).alternatives[0][1].value == "b"


def test_lists_are_sorted_with_missing_values_last(store: Store, records: Records) -> None:
    for sort in ("lr", "-duration", "val/loss", "-step", "loss", "name", "-throughput", "progress", "-state"):
        in_order = searched(store, "", sort)
        assert sorted(in_order) == sorted(records)
    rates = [records[run_id].fields["lr"] for run_id in searched(store, "", "-lr")]
    present = [rate[0] for rate in rates if rate]
    assert present == sorted(present, reverse=True) and rates[len(present) :] == [()] * (COUNT - len(present))
