"""A column of the list of runs is a field, or one number of a series; what cannot be one is refused with the rule."""

from __future__ import annotations

import pytest

from domain.search.completion import complete_column
from domain.search.fields import RunColumn, SeriesFigure, Sort, best_columns, parse_column, parse_sort, rises
from domain.search.parser import parse
from domain.search.query import FieldKind, QueryError


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("LR", RunColumn(FieldKind.NUMBER, "lr")),
        ("recipe", RunColumn(FieldKind.TEXT, "target")),
        ("val/loss", RunColumn(FieldKind.SERIES, "val/loss")),
        ('"lr"', RunColumn(FieldKind.SERIES, "lr")),
        ("best:val/loss", RunColumn(FieldKind.SERIES, "val/loss", SeriesFigure.BEST)),
        ('max:"a b"', RunColumn(FieldKind.SERIES, "a b", SeriesFigure.MAX)),
        ('"min:odd"', RunColumn(FieldKind.SERIES, "min:odd")),
    ],
)
def test_a_column_is_a_field_or_a_number_of_a_series(text: str, column: RunColumn) -> None:
    assert parse_column(text) == column
    assert parse_sort(f"-{text}") == Sort(column, is_descending=True) and parse_sort(text) == Sort(column)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("tag", "several values"),
        ("lrr", "did you mean lr?"),
        ("best:gpu/power", "min:gpu/power"),
        ("max:", "max:val/loss"),
    ],
)
def test_other_columns_are_refused_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(QueryError, match=rule):
        parse_column(text)


def test_fields_and_numbers_of_series_are_proposed() -> None:
    def stored(field: str, part: str) -> list[str]:
        return [name for name in ("val/loss", "gpu/power") if part in name]

    proposed = complete_column("loss", stored)
    assert proposed == ["loss", "val/loss", "best:val/loss", "min:val/loss", "max:val/loss"]
    assert complete_column("max:p", stored) == ["max:gpu/power"]
    assert "best:gpu/power" not in complete_column("power", stored) and "tag" not in complete_column("", stored)


@pytest.mark.parametrize(
    ("search", "columns"),
    [
        ("state:failed lr>0.1", []),
        ("val/acc>0.9", ["best:val/acc"]),
        ("val/loss>0.2 or val/acc<0.5 or val/loss<1", ["best:val/loss", "best:val/acc"]),
        ('"score">0.9 bits/byte<=2', ["max:score", "min:bits/byte"]),
        ("-quality/x>0.9 not quality/y<1", ["min:quality/x", "max:quality/y"]),
        ("quality/x=1", ["last:quality/x"]),
    ],
)
def test_a_list_has_the_best_of_what_is_searched(search: str, columns: list[str]) -> None:
    assert best_columns(parse(search, 0.0)) == columns
    assert all(parse_column(column).kind is FieldKind.SERIES for column in columns)


def test_a_list_has_the_best_of_what_sorts_and_judges_it_too() -> None:
    query, sort = parse("val/acc>0.9", 0.0), parse_sort("-max:reward/mean")
    assert best_columns(query, sort, "val/loss") == ["best:val/acc", "max:reward/mean", "best:val/loss"]
    assert best_columns(query, parse_sort("lr"), "val/acc") == ["best:val/acc"]


@pytest.mark.parametrize(
    ("column", "is_so"), [("best:val/loss", True), ("best:acc", False), ("min:x", True), ("max:loss", False)]
)
def test_a_first_click_puts_the_best_first(column: str, is_so: bool) -> None:
    assert rises(column) is is_so
