"""The fields of a search as SQL expressions over a run and its latest attempt."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import ColumnElement, Float, String, and_, case, cast, func, literal, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from db.metrics.series_names import MAIN_LOSS, PROBED_TAGS, THROUGHPUT_TAGS, TOTAL_STEPS_TAG
from db.models import Attempt, Run, Series
from domain.goals import goal
from domain.messages import SCRIPT_KINDS, State
from domain.search.fields import (
    SPEC_FLAGS,
    SPEC_NAMES,
    SPEC_NUMBERS,
    SPEC_TEXTS,
    Column,
    SeriesFigure,
)
from domain.search.query import FieldKind
from domain.spec import RunSpec

Expression = ColumnElement[Any]
NUMBER = Float(53)
_COLUMNS: dict[str, Expression] = {
    "id": Run.id.expression,
    "name": Run.name.expression,
    "project": Run.project.expression,
    "note": Run.note.expression,
    "created": Run.created_at.expression,
    "archived": Run.archived_at.is_not(None),
    "pinned": Run.pinned_at.is_not(None),
    "baseline": Run.baseline_at.is_not(None),
    "state": Attempt.state.expression,
    "reason": Attempt.reason.expression,
    "message": func.coalesce(func.nullif(Attempt.message, ""), Attempt.end_message),
    "attempt": cast(Attempt.number, NUMBER),
    "started": Attempt.started_at.expression,
    "ended": Attempt.ended_at.expression,
}


class ascii_lower(GenericFunction[str]):
    """Text with small letters for A to Z only: databases differ in all other letters."""

    type = String()
    inherit_cache = True


@compiles(ascii_lower)
def _ascii_lower(element: ascii_lower, compiler: Any, **options: Any) -> str:
    return f"lower({compiler.process(element.clauses, **options)})"


@compiles(ascii_lower, "postgresql")
def _ascii_lower_of_postgresql(element: ascii_lower, compiler: Any, **options: Any) -> str:
    return f'lower(({compiler.process(element.clauses, **options)}) COLLATE "C")'


def value_of(column: Column, now: float) -> Expression:
    """The value of a field with one value, or a number of a series; NULL where a run has none."""
    kind, name, figure = column
    if kind is FieldKind.SERIES:
        return select(_number(figure, name)).where(is_named(name)).limit(1).scalar_subquery()
    if name == "duration":
        return func.coalesce(Attempt.ended_at, literal(now, NUMBER)) - Attempt.started_at
    if name == "gpus":
        return _of_spec("nodes") * _of_spec("gpus_per_node")
    if name in _COLUMNS:
        return _COLUMNS[name]
    return _FIGURES[name]() if name in _FIGURES else _of_spec(name)


def _number(figure: SeriesFigure, name: str) -> Expression:
    if figure is SeriesFigure.LAST:
        return Series.last_number.expression
    is_lowest = figure is SeriesFigure.MIN or (figure is SeriesFigure.BEST and goal(name) == "min")
    return Series.lowest.expression if is_lowest else Series.highest.expression


def is_named(name: str) -> ColumnElement[bool]:
    """Whether a series of the attempt has this name (`db.metrics.series_names.public_name`)."""
    node, own_name = re.fullmatch(r"(?:node(\d{1,6})/)?(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    places = [(int(node or 0), "events", own_name), (0, "events", name)]
    source, slash, tag = own_name.partition("/")
    places += [(int(node or 0), source, tag)] if slash and len(source) <= 8 else []
    is_any = or_(*(and_(Series.node_rank == n, Series.source == s, Series.tag == t) for n, s, t in set(places)))
    return and_(Series.fence == Attempt.fence, is_any)


def _of_spec(name: str) -> Expression:
    """A field of the spec; stored specs may lack fields that were added later."""
    stored = Run.spec[name]
    readers = {**dict.fromkeys(SPEC_NUMBERS, stored.as_float), **dict.fromkeys(SPEC_FLAGS, stored.as_boolean)}
    readers |= dict.fromkeys([*SPEC_NAMES, *SPEC_TEXTS], stored.as_string)
    default = RunSpec.model_fields[name].get_default()
    value = readers[name]()
    return value if default is None or name == "target" else func.coalesce(value, default)


def _step() -> Expression:
    """The last step of rank 0's logged series, else of printed ones, else of the probe's."""
    sources = (Series.source == "events", Series.source == "printed", _is_probed())
    last = (select(func.max(Series.last_step)).where(_is_rank_0s(), source) for source in sources)
    return cast(func.coalesce(*(query.scalar_subquery() for query in last)), NUMBER)


def _loss() -> Expression:
    """The last training loss, as `db.metrics.series_names.main_loss` chooses it."""
    is_loss = or_(Series.tag.in_(MAIN_LOSS), ascii_lower(Series.tag).endswith("loss"))
    places = {tag: place for place, tag in enumerate(MAIN_LOSS)}
    order = (Series.source, case(places, value=Series.tag, else_=len(places)), Series.tag)
    chosen = select(Series.last_number).where(_is_rank_0s(), _is_the_scripts(), is_loss)
    return func.coalesce(_logged(MAIN_LOSS[0]), chosen.order_by(*order).limit(1).scalar_subquery())


def _throughput() -> Expression:
    """The last throughput that the script logs, else the probe's."""
    places = {tag: place for place, tag in enumerate(THROUGHPUT_TAGS)}
    chosen = select(Series.last_number).where(_is_rank_0s(), or_(_is_the_scripts(), _is_probed()))
    chosen = chosen.where(Series.tag.in_(THROUGHPUT_TAGS))
    chosen = chosen.order_by(case(places, value=Series.tag), Series.source).limit(1)
    return func.coalesce(_logged(THROUGHPUT_TAGS[0]), chosen.scalar_subquery())


def _logged(tag: str) -> Expression:
    """The last number of the tag that is chosen before all others, looked up by its key: most runs log it.

    A search for the one to choose reads all series of a run, three times as long in a list of ten thousand."""
    is_it = and_(Series.source == "events", Series.tag == tag)
    return select(Series.last_number).where(_is_rank_0s(), is_it).scalar_subquery()


def _progress() -> Expression:
    """The share of its steps, 0 to 1; NULL where their number is unknown."""
    is_total = and_(_is_the_scripts(), Series.tag == TOTAL_STEPS_TAG)
    logged = select(Series.last_number).where(_is_rank_0s(), is_total).limit(1).scalar_subquery()
    total = func.nullif(func.coalesce(logged, _of_spec("max_steps")), 0.0, type_=NUMBER)
    share = func.coalesce(_step(), 0.0, type_=NUMBER) / total
    return case((Attempt.state == State.SUCCEEDED, 1.0), (share > 1.0, 1.0), else_=share)


def _is_rank_0s() -> ColumnElement[bool]:
    return and_(Series.fence == Attempt.fence, Series.node_rank == 0)


def _is_the_scripts() -> ColumnElement[bool]:
    return Series.source.in_(SCRIPT_KINDS)


def _is_probed() -> ColumnElement[bool]:
    return and_(Series.source == "probe", Series.tag.in_(PROBED_TAGS))


_FIGURES = {"step": _step, "loss": _loss, "throughput": _throughput, "progress": _progress}
