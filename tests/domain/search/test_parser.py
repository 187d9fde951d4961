"""Searches are read as people mean them, and errors point at the word that is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.search.fields import FIELDS, RunColumn, Sort, parse_sort
from domain.search.parser import LONGEST, MINE, as_text, mine, parse
from domain.search.query import EVERYTHING, Comparison, Condition, FieldKind, QueryError
from domain.spec import RunSpec

NOW = 1_000_000.0
DAY_S = 86_400


def conditions(text: str) -> list[Condition]:
    (only,) = parse(text, NOW).alternatives
    return list(only)


def test_the_search_of_the_documentation() -> None:
    text = 'state:failed lr>0.001 recipe:Language_model tag:paper val/loss<0.2 started:>2d node:gpu-3 "out of memory"'
    assert conditions(text) == [
        Condition(FieldKind.NAME, "state", Comparison.EQUAL, "failed"),
        Condition(FieldKind.NUMBER, "lr", Comparison.GREATER, 0.001),
        Condition(FieldKind.TEXT, "target", Comparison.CONTAINS, "Language_model"),
        Condition(FieldKind.NAME, "tag", Comparison.EQUAL, "paper"),
        Condition(FieldKind.SERIES, "val/loss", Comparison.LESS, 0.2),
        Condition(FieldKind.MOMENT, "started", Comparison.LESS, NOW - 2 * DAY_S),
        Condition(FieldKind.NAME, "node", Comparison.EQUAL, "gpu-3"),
        Condition(FieldKind.ANYWHERE, "", Comparison.CONTAINS, "out of memory"),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("started:<2h", NOW - 7200), ("created>=1970-01-02", DAY_S), ("ended<1970-01-01T02:00+01:00", 3600),
        ("duration>30m", 1800), ("duration<1.5h", 5400), ("elastic:YES", True), ("archived=no", False),
        ("batch_size:8", 8), ("lr=1e-3", 0.001), ('"epoch">3', 3), ("accuracy>.9", 0.9), ("seed>-1", -1),
        ('name:"a b"', "a b"), ("a-b", "a-b"), ("node1/hardware/x<2", 2),
    ],
)  # fmt: skip
def test_values_are_read_by_their_kind(text: str, value: object) -> None:
    assert [condition.value for condition in conditions(text)] == [value]


def test_negations_and_alternatives() -> None:
    negated = [c.is_negated for c in conditions("a -b not c not -d -lr!=1 lr!=1 and e")]
    assert negated == [False, True, True, False, False, True, False]
    assert [[c.value for c in each] for each in parse('a "or" OR b|c', NOW).alternatives] == [
        ["a", "or"],
        ["b"],
        ["c"],
    ]
    assert parse("  ", NOW) == EVERYTHING


@pytest.mark.parametrize(
    ("text", "word", "rule"),
    [
        ("lr>1 sate:failed", "sate", "did you mean state?"),
        ("state:fialed", "fialed", "did you mean failed?"),
        ("state:x", "x", "one of queued, starting"),
        ("http://x", "http", 'put it in quotes: "http://x"'),
        ("epoch>3", "epoch", 'did you mean epochs? A series of that name is written in quotes: "epoch"'),
        ("lr>x", "x", "lr is compared with a number"),
        ("val/loss<nan", "nan", "val/loss is compared with a number"),
        ("name>x", "x", "name has no order: write name:x"),
        ("started:2d", "2d", "started needs < (in the last 2d) or >"),
        ("started>soon", "soon", "is neither"),
        ("started=1970-01-02", "1970-01-02", "started needs < or >"),
        ("duration>2", "2", "like duration>30m"),
        ("pinned:maybe", "maybe", "pinned is yes or no"),
        ("lr> 2", "lr>", "lr needs a value after >"),
        ('a "b c', '"b c', "not closed"),
        ('"a"b', '"a"b', "Put a space"),
        ("a or", "or", "or needs a condition after it"),
        ("| a", "|", "| needs a condition before it"),
        ("a or | b", "|", "before it"),
        ("a not", "not", "not needs a condition after it"),
        ("a\0", "\0", "no control characters"),
    ],
)  # fmt: skip
def test_errors_point_at_the_word_and_say_the_rule(text: str, word: str, rule: str) -> None:
    with pytest.raises(QueryError) as raised:
        parse(text, NOW)
    assert text[raised.value.start : raised.value.end] == word
    assert rule in str(raised.value)


@given(st.text(alphabet=st.sampled_from(list('ab:<>=!|-" \tlr/01dé\0')) | st.characters(), max_size=LONGEST + 5))
def test_any_text_is_a_search_or_an_error_inside_it(text: str) -> None:
    try:
        parse(text, NOW)
    except QueryError as error:
        assert 0 <= error.start < error.end <= len(text) and str(error)


@given(st.text(alphabet=st.characters(exclude_categories=["C"]), max_size=200))
def test_words_as_they_stand_are_no_fields(text: str) -> None:
    assert {condition.kind for condition in conditions(as_text(text))} <= {FieldKind.ANYWHERE}


def test_a_list_is_sorted_by_a_field_or_a_series() -> None:
    assert parse_sort("-LR") == Sort(RunColumn(FieldKind.NUMBER, "lr"), True)
    assert parse_sort("recipe") == Sort(RunColumn(FieldKind.TEXT, "target"))
    assert parse_sort("-val/loss") == Sort(RunColumn(FieldKind.SERIES, "val/loss"), True)
    assert parse_sort('"epoch"') == Sort(RunColumn(FieldKind.SERIES, "epoch")) and parse_sort("") is None
    for wrong in ("tag", "strated"):
        with pytest.raises(QueryError):
            parse_sort(wrong)


def test_every_plain_field_of_a_spec_is_a_field_of_the_search() -> None:
    rich = {"snapshot", "args", "as_variables", "env", "links", "stage", "labels", "on_nodes", "secrets", "slurm"}
    assert set(RunSpec.model_fields) - set(FIELDS) == rich


@pytest.mark.parametrize(
    ("text", "narrowed"),
    [
        ("", "by:me"),
        ("lr>0.1 gpt", "by:me lr>0.1 gpt"),
        ("tag:a or not tag:b", "by:me tag:a or by:me not tag:b"),
        ('"this or that" | x', 'by:me "this or that" | by:me x'),
    ],
)
def test_each_alternative_is_narrowed_to_ones_own_runs(text: str, narrowed: str) -> None:
    assert mine(text) == narrowed
    assert all(parse(MINE, 0.0).alternatives[0][0] in part for part in parse(narrowed, 0.0).alternatives)
