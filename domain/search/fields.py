"""The fields that a search knows, and the order in which a list is sorted."""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

from domain import spec
from domain.catalogue import InputKind
from domain.search.query import Comparison, Condition, FieldKind, Query, QueryError
from domain.series.goals import goal

ANYWHERE = ("id", "name", "project", "target", "message", "note")
"""The fields in which words without a field are looked for."""
PLURAL = frozenset({"tag", "node", "imported"})
"""Fields of which a run has several values."""
_KINDS = {
    InputKind.CHOICE: FieldKind.NAME, InputKind.TEXT: FieldKind.TEXT, InputKind.NUMBER: FieldKind.NUMBER,
    InputKind.FLAG: FieldKind.FLAG,
}  # fmt: skip
_OF_RUNS: dict[str, FieldKind] = {
    **dict.fromkeys(["state", "project", "by", "tag", "node", "reason", "imported"], FieldKind.NAME),
    **dict.fromkeys(["id", "name", "message", "note"], FieldKind.TEXT),
    **dict.fromkeys(["gpus", "attempt", "step", "loss", "throughput", "progress"], FieldKind.NUMBER),
    **dict.fromkeys(["archived", "pinned", "baseline", "watched"], FieldKind.FLAG),
    **dict.fromkeys(["created", "started", "ended"], FieldKind.MOMENT),
    "duration": FieldKind.DURATION,
}
_OF_SPECS = {row.name: _KINDS[row.kind] for row in spec.FIELDS.values() if row.is_searched and row.kind in _KINDS}
FIELDS = _OF_RUNS | {name: kind for name, kind in _OF_SPECS.items() if name not in _OF_RUNS}
"""In the order in which they are proposed."""
ALIASES = {"recipe": "target", "script": "target"}


class SeriesFigure(StrEnum):
    """A single number of a series of the latest attempt, written before its name, as in `best:val/loss`."""

    LAST = "last"
    BEST = "best"
    MIN = "min"
    MAX = "max"


class RunColumn(NamedTuple):
    """A value that each run of a list has one of: a field's, or a number of a series."""

    kind: FieldKind
    name: str
    figure: SeriesFigure = SeriesFigure.LAST


class Sort(NamedTuple):
    """The order of a list; runs without a value come last."""

    column: RunColumn
    is_descending: bool = False


def similar(name: str) -> str | None:
    """The field whose name a misspelt one resembles; None when there is none."""
    matches = get_close_matches(name.lower(), [*FIELDS, *ALIASES], 1, cutoff=0.75)
    return matches[0] if matches else None


def parse_sort(text: str) -> Sort | None:
    """Read `lr`, `-started` (descending) or `best:val/loss`; None for no text. Raises QueryError."""
    is_descending = text.startswith("-")
    column = parse_column(text.removeprefix("-"), len(text)) if text.strip() else None
    return Sort(column, is_descending) if column else None


def parse_column(text: str, length: int | None = None) -> RunColumn:
    """Read `lr`, `val/loss` (its last value) or `best:val/loss`, `min:…`, `max:…`. Raises QueryError."""
    name, end = text.strip(), len(text) if length is None else length
    field = ALIASES.get(name.lower(), name.lower())
    if field in PLURAL:
        raise QueryError(f"A run may have several values of {field}: choose another field.", 0, end)
    if field in FIELDS:
        return RunColumn(FIELDS[field], field)
    before, colon, after = name.partition(":")
    if colon and before.lower() in tuple(SeriesFigure):
        return _figure(SeriesFigure(before.lower()), _unquoted(after), end)
    is_quoted = _unquoted(name) != name
    if not name or ("/" not in name and not is_quoted and (meant := similar(name))):
        advice = f"did you mean {meant}?" if name else "name one."
        raise QueryError(f'There is no field "{name}": {advice}', 0, end)
    return RunColumn(FieldKind.SERIES, _unquoted(name))


def _figure(figure: SeriesFigure, name: str, end: int) -> RunColumn:
    if not name:
        raise QueryError(f"Write {figure}: before the name of a series, as in {figure}:val/loss.", 0, end)
    if figure is SeriesFigure.BEST and goal(name) is None:
        rule = f'Whether a lower "{name}" is better is unknown: write min:{name} or max:{name}.'
        raise QueryError(rule, 0, end)
    return RunColumn(FieldKind.SERIES, name, figure)


def best_columns(query: Query, sort: Sort | None = None, metric: str | None = None) -> list[str]:
    """The columns with the best values of what a list is searched for, sorted by and judged by (`metric`).

    Where a name does not say which values are better, the search does: those that it asks for."""
    conditions = [one for alternative in query.alternatives for one in alternative if one.kind is FieldKind.SERIES]
    columns = [f"{_better(condition)}:{condition.name}" for condition in conditions]
    if sort is not None and sort.column.kind is FieldKind.SERIES:
        columns.append(f"{sort.column.figure}:{sort.column.name}")
    if metric is not None:
        columns.append(f"{SeriesFigure.BEST}:{metric}")
    return list(dict.fromkeys(columns))


def rises(column: str) -> bool:
    """Whether low values of a column come first where the best do."""
    figure, _, name = column.partition(":")
    return figure == SeriesFigure.MIN or (figure == SeriesFigure.BEST and goal(name) == "min")


def _better(condition: Condition) -> SeriesFigure:
    if goal(condition.name) is not None:
        return SeriesFigure.BEST
    if condition.operator in (Comparison.GREATER, Comparison.AT_LEAST):
        return SeriesFigure.MIN if condition.is_negated else SeriesFigure.MAX
    if condition.operator in (Comparison.LESS, Comparison.AT_MOST):
        return SeriesFigure.MAX if condition.is_negated else SeriesFigure.MIN
    return SeriesFigure.LAST


def _unquoted(name: str) -> str:
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] == '"' else name
