"""A search for runs as a condition in SQL, its fields as expressions, the order of a list, and words to complete."""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Float,
    String,
    UnaryExpression,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from db import acting
from db.engine import Store
from db.metrics.series_names import (
    EPOCH_TAGS,
    MAIN_LOSS,
    PROBED_TAGS,
    THROUGHPUT_TAGS,
    TOTAL_EPOCHS_TAG,
    TOTAL_STEPS_TAG,
)
from db.models import Attempt, ImportedRun, Node, Run, RunTag, Series, Task, WatchedRun
from db.people.visibility import sees_everything, visible_fences, visible_runs
from domain import spec
from domain.messages import SCRIPT_KINDS, State
from domain.search.fields import (
    ANYWHERE,
    FIELDS,
    RunColumn,
    SeriesFigure,
    Sort,
)
from domain.search.parser import ME
from domain.search.query import Comparison, Condition, FieldKind, Query
from domain.series.goals import goal


def matches(query: Query, now: float) -> ColumnElement[bool]:
    """Whether a run and its latest attempt match the search."""
    return or_(*(and_(true(), *(_is_met(c, now) for c in conditions)) for conditions in query.alternatives))


_ORDER: dict[Comparison, Any] = {
    Comparison.LESS: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.GREATER: operator.gt,
    Comparison.AT_LEAST: operator.ge,
    Comparison.EQUAL: operator.eq,
}


def in_order(sort: Sort | None, now: float) -> list[ColumnElement[Any]]:
    """The ORDER BY of a list: runs without the value last, then the newest first."""
    newest: list[ColumnElement[Any]] = [Run.created_at.desc(), Run.id.expression]
    if sort is None:
        return newest
    value = value_of(sort.column, now)
    if sort.column.kind in (FieldKind.NAME, FieldKind.TEXT):
        value = ascii_lower(value)
    direction: UnaryExpression[Any] = value.desc() if sort.is_descending else value.asc()
    return [direction.nulls_last(), *newest]


def _is_met(condition: Condition, now: float) -> ColumnElement[bool]:
    if (is_so := _is_found(condition)) is None:
        is_so = func.coalesce(_holds(condition, now), false())
    return not_(is_so) if condition.is_negated else is_so


def _is_found(condition: Condition) -> ColumnElement[bool] | None:
    """Whether another table has a row of the run that meets the condition; None for conditions on the run itself.

    A small table is read once, as a set from which the database may begin; series are looked up run by run."""
    if condition.kind is FieldKind.SERIES:
        is_there = and_(is_named(condition.name), _compared(Series.last_number.expression, condition))
        return select(Series.id).where(is_there).exists()
    if condition.name == "tag":
        return Run.id.in_(select(RunTag.run_id).where(_compared(RunTag.tag.expression, condition)))
    if condition.name == "node":
        tasks = select(Task.fence).join(Node, Node.id == Task.node_id)
        return Attempt.fence.in_(tasks.where(_compared(Node.name.expression, condition)))
    return _is_imported(condition) if condition.name == "imported" else None


def _holds(condition: Condition, now: float) -> ColumnElement[bool]:
    """The comparison; NULL where the run lacks the value."""
    if condition.kind is FieldKind.ANYWHERE:
        texts = (value_of(RunColumn(FIELDS[name], name), now) for name in ANYWHERE)
        return or_(*(_compared(func.coalesce(text, ""), condition) for text in texts))
    if condition.name == "by" and lowered(str(condition.value)) == ME:
        return Run.by == (acting.rights().by or "")
    return _compared(value_of(RunColumn(condition.kind, condition.name), now), condition)


def _is_imported(condition: Condition) -> ColumnElement[bool]:
    """Whether a run was imported, or by this importer."""
    marks = select(ImportedRun.run_id)
    match lowered(str(condition.value)):
        case "yes":
            return Run.id.in_(marks)
        case "no":
            return Run.id.not_in(marks)
    return Run.id.in_(marks.where(_compared(ImportedRun.format.expression, condition)))


def _compared(value: ColumnElement[Any], condition: Condition) -> ColumnElement[bool]:
    operand = condition.value
    if isinstance(operand, str):
        text = lowered(operand)
        if condition.operator is Comparison.CONTAINS:
            return ascii_lower(value).contains(text, autoescape=True)
        return ascii_lower(value) == text
    if isinstance(operand, bool):
        return value.is_(operand) if condition.kind is FieldKind.FLAG else value == operand
    compared: ColumnElement[bool] = _ORDER[condition.operator](value, literal(operand, NUMBER))
    return compared


def lowered(text: str) -> str:
    """Text with small letters for A to Z, as every database does it."""
    return text.translate(_CAPITALS)


_CAPITALS = str.maketrans(ascii_uppercase, ascii_lowercase)

# The fields of a search as SQL expressions over a run and its latest attempt.

Expression = ColumnElement[Any]
NUMBER = Float(53)
_COLUMNS: dict[str, Expression] = {
    "id": Run.id.expression,
    "name": Run.name.expression,
    "project": Run.project.expression,
    "by": Run.by.expression,
    "note": Run.note.expression,
    "created": Run.created_at.expression,
    "archived": Run.archived_at.is_not(None),
    "pinned": Run.pinned_at.is_not(None),
    "baseline": Run.baseline_at.is_not(None),
    "watched": Run.id.in_(select(WatchedRun.run_id)),
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


def value_of(column: RunColumn, now: float) -> Expression:
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
    readers = {FieldKind.NUMBER: stored.as_float, FieldKind.FLAG: stored.as_boolean}
    value, default = readers.get(FIELDS[name], stored.as_string)(), spec.FIELDS[name].default
    return value if default is None else func.coalesce(value, default)


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
    """The share of its steps, else of its epochs, 0 to 1; NULL where neither number is known."""
    step = func.coalesce(_step(), 0.0, type_=NUMBER)
    totals = (_last_told(Series.last_number, [TOTAL_STEPS_TAG]), _of_spec("max_steps"))
    return case((Attempt.state == State.SUCCEEDED, 1.0), else_=func.coalesce(_share(step, step, totals), _of_epochs()))


def _of_epochs() -> Expression:
    """The share of epochs that have ended, as `domain.scheduling.epochs` has it."""
    last, lowest, amount, total = (
        _last_told(column, EPOCH_TAGS)
        for column in (Series.last_number, Series.lowest, Series.finite_count, Series.finite_sum)
    )
    losses = func.coalesce(_last_told(Series.finite_count, MAIN_LOSS), 0)
    has_fractions = or_(*(value != func.round(value) for value in (last, lowest, total)))
    current = last + case((and_(lowest < 1, not_(has_fractions)), 1.0), else_=0.0)
    is_at_end = or_(has_fractions, and_(amount <= last - lowest + 1, losses <= amount))
    ended = current - case((is_at_end, 0.0), else_=1.0)
    return _share(ended, current, (_last_told(Series.last_number, [TOTAL_EPOCHS_TAG]), _of_spec("epochs")))


def _share(ended: Expression, reached: Expression, totals: Sequence[Expression]) -> Expression:
    """The share that has ended of the first total that is not passed."""
    ahead = (case((total >= reached, total)) for total in totals)
    return cast(ended / func.nullif(func.coalesce(*ahead), 0.0, type_=NUMBER), NUMBER)


def _last_told(column: Any, tags: Sequence[str]) -> Expression:
    """A column of the first of the tags that the script logs, else that it prints."""
    chosen = select(column).where(_is_rank_0s(), _is_the_scripts(), Series.tag.in_(tags))
    places = case({tag: place for place, tag in enumerate(tags)}, value=Series.tag)
    return cast(chosen.order_by(Series.source, places).limit(1).scalar_subquery(), NUMBER)


def _is_rank_0s() -> ColumnElement[bool]:
    return and_(Series.fence == Attempt.fence, Series.node_rank == 0)


def _is_the_scripts() -> ColumnElement[bool]:
    return Series.source.in_(SCRIPT_KINDS)


def _is_probed() -> ColumnElement[bool]:
    return and_(Series.source == "probe", Series.tag.in_(PROBED_TAGS))


_FIGURES = {"step": _step, "loss": _loss, "throughput": _throughput, "progress": _progress}

# The tags, projects, nodes, targets, importers and series that can stand in a search.

MOST = 12
_WORD_COLUMNS: dict[str, ColumnElement[Any]] = {
    "tag": RunTag.tag.expression,
    "project": Run.project.expression,
    "by": Run.by.expression,
    "node": Node.name.expression,
    "target": Run.spec["target"].as_string(),
    "imported": ImportedRun.format.expression,
    "series": case((Series.source == "events", Series.tag), else_=Series.source + "/" + Series.tag),
}


def words(store: Store, field: str, part: str) -> list[str]:
    """Stored values of a field that hold this part, in order, of visible runs; case is ignored."""
    column = _WORD_COLUMNS[field]
    query = select(column).distinct().where(func.lower(column).contains(part.lower(), autoescape=True))
    if field == "series":
        query = query.where(Series.node_rank == 0)
    if not sees_everything() and field != "node":
        query = query.where(_is_of_visible_run(field))
    with store.read() as session:
        return list(session.scalars(query.order_by(column).limit(MOST)))


def _is_of_visible_run(field: str) -> ColumnElement[bool]:
    if field == "series":
        return Series.fence.in_(select(Attempt.fence).where(visible_fences()))
    tables: dict[str, ColumnElement[str]] = {"tag": RunTag.run_id.expression, "imported": ImportedRun.run_id.expression}
    return tables[field].in_(select(Run.id).where(visible_runs())) if field in tables else visible_runs()
