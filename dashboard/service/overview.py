"""The table of runs for the browser: urgent runs first, a small loss curve each, in compact JSON values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from db.engine import Store
from db.metrics.curves import SeriesRow, StepRange, loss_rows, series, series_names, thinned_columns
from db.metrics.series_names import main_loss
from db.runs.run_list import RunList, RunSelection
from domain.messages import LIVE_STATES, SCRIPT_KINDS, State
from domain.search.fields import RunColumn, parse_column, parse_sort
from domain.search.parser import parse
from domain.search.query import FieldKind
from domain.series.goals import change_percent
from domain.spec import RunSpec
from domain.text.formats import not_finite
from domain.views import RunView

WINDOW = 100


class Filter(NamedTuple):
    """The selected runs; all of them by default."""

    text: str = ""
    states: tuple[State, ...] = ()
    project: str = ""
    search: str = ""
    """In the language of `domain.search`."""
    needs_attention: bool = False


class RowRange(NamedTuple):
    """The rows that a page shows now, and their order; by default urgent runs first and a long queue folded."""

    sort: str = ""
    offset: int = 0
    limit: int = WINDOW
    is_queue_unfolded: bool = False
    columns: tuple[str, ...] = ()
    """Further values of each run, in the language of `domain.search.fields.parse_column`."""


EVERYTHING = Filter()
FIRST = RowRange()


def overview(store: Store, now: float, run_filter: Filter = EVERYTHING, window: RowRange = FIRST) -> dict[str, Any]:
    """The rows of a window with their place in the whole list, and the numbers of runs. Raises QueryError.

    `total` counts the rows of the whole list; `fold` is the row before which `folded` queued runs are left out."""
    with store.read() as session:
        runs = RunList(session, _selection(run_filter, now), now)
        total, counts = runs.total(), runs.not_ended()
        ranked = sorted(runs.urgent(MOST_URGENT), key=rank)
        attention = [run for run in ranked if run.attention]
        if run_filter.needs_attention:
            page = _sorted_attention(runs, attention, window)
        elif window.sort:
            page = _Page(runs.page(parse_sort(window.sort), window.offset, window.limit), total)
        else:
            is_folded = not (window.is_queue_unfolded or run_filter.states)
            urgent = [run for run in ranked if _is_urgent(run)]
            page = _by_urgency(runs, urgent, total, counts[State.QUEUED], window, is_folded)
        columns = [parse_column(text) for text in window.columns]
        values = _values(runs, page.views, columns)
        changes = _changes(runs, page.views, columns, values)
    curves = CURVES.of(store, page.views)
    return {
        "runs": [
            row(run, curves[run.id]) | {"values": values[run.id], "changes": changes[run.id]} for run in page.views
        ],
        "columns": [{"key": key, "kind": of.kind} for key, of in zip(window.columns, columns, strict=True)],
        "offset": window.offset,
        "total": page.total,
        "fold": page.fold,
        "folded": page.folded,
        "live": counts.total() - counts[State.QUEUED],
        "queued": counts[State.QUEUED],
        "ended": total - counts.total(),
        "attention": len(attention),
        "is_cut": window.offset + len(page.views) < page.total,
    }


MOST_URGENT = 500
"""Limit on runs that are ranked by urgency; further ones follow by their time of launch."""
FEW_QUEUED = 5
"""Queued runs that a folded queue shows."""


class LossCurves:
    """The curves that were shown last."""

    def __init__(self) -> None:
        self._curves: OrderedDict[_Key, Curve] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, store: Store, runs: Sequence[RunView]) -> dict[str, Curve]:
        """The curve of each run by its id; None where there is none."""
        keys = {run.id: (store, run.id, run.attempt, run.step) for run in runs if run.step is not None}
        with self._lock:
            curves = {key: self._curves[key] for key in keys.values() if key in self._curves}
            new = [run for run in runs if run.id in keys and keys[run.id] not in curves]
            for run_id, curve in (_read(store, new) if new else {}).items():
                curves[keys[run_id]] = self._curves[keys[run_id]] = curve
            for _ in range(len(self._curves) - MOST_CURVES):
                self._curves.popitem(last=False)
        return {run.id: curves[keys[run.id]] if run.id in keys else None for run in runs}


CURVES = LossCurves()


def run_ids(store: Store, now: float, run_filter: Filter, sort: str, limit: int) -> list[str]:
    """The ids of the first runs of the whole list, newest first or sorted. Raises QueryError."""
    selection = _selection(run_filter, now)
    with store.read() as session:
        runs = RunList(session, selection, now)
        if not run_filter.needs_attention:
            return runs.ids(parse_sort(sort), limit)
        return [run.id for run in sorted(runs.urgent(MOST_URGENT), key=rank) if run.attention][:limit]


def _selection(run_filter: Filter, now: float) -> RunSelection:
    query = parse(run_filter.search, now)
    return RunSelection(query, run_filter.text, run_filter.states, run_filter.project)


def _values(runs: RunList, views: Sequence[RunView], columns: Sequence[RunColumn]) -> dict[str, list[Any]]:
    """The values of the columns by run; those of the spec with masked secrets."""
    values = runs.values([run.id for run in views], columns)
    for run in views:
        own = values.setdefault(run.id, [None] * len(columns))
        for at, column in enumerate(columns):
            if column.kind is not FieldKind.SERIES and column.name in RunSpec.model_fields:
                own[at] = getattr(run.spec, column.name)
    return values


def _changes(
    runs: RunList, views: Sequence[RunView], columns: Sequence[RunColumn], values: Mapping[str, list[Any]]
) -> dict[str, list[float | None]]:
    """The change of each number of a series to that of the project's baseline, in per cent; None for all else."""
    baselines = runs.baselines({run.project for run in views}) if columns else {}
    bases = runs.values(list(baselines.values()), columns)
    is_series = [column.kind is FieldKind.SERIES for column in columns]

    def changes_of(run: RunView) -> list[float | None]:
        baseline = baselines.get(run.project)
        if baseline is None or baseline == run.id:
            return [None] * len(columns)
        numbers = zip(is_series, values[run.id], bases[baseline], strict=True)
        return [change_percent(value, base) if compared else None for compared, value, base in numbers]

    return {run.id: changes_of(run) for run in views}


class _Page(NamedTuple):
    views: list[RunView]
    total: int
    fold: int | None = None
    folded: int = 0


def _sorted_attention(runs: RunList, attention: list[RunView], window: RowRange) -> _Page:
    first, end = window.offset, window.offset + window.limit
    if not window.sort:
        return _Page(attention[first:end], len(attention))
    only = [run.id for run in attention]
    return _Page(runs.page(parse_sort(window.sort), first, window.limit, only=only), len(attention))


def _by_urgency(
    runs: RunList, urgent: list[RunView], total: int, queued: int, window: RowRange, is_folded: bool
) -> _Page:
    """Urgent runs, then the queue, then all others; each of the three is read as far as the window shows it."""
    ids = [run.id for run in urgent]
    waiting = queued - sum(run.state == State.QUEUED for run in urgent)
    shown = FEW_QUEUED if is_folded and waiting > FEW_QUEUED + 1 else waiting
    first, end = window.offset, window.offset + window.limit
    fences: list[int] = []  # of both, so that their runs are read at once
    queue_end = len(urgent) + shown
    if waiting and first < queue_end and end > len(urgent):
        start = max(0, first - len(urgent))
        fences += runs.fences(None, start, min(shown, end - len(urgent)) - start, [State.QUEUED], ids)
    if end > queue_end:
        start = max(0, first - queue_end)
        others = [state for state in State if state != State.QUEUED]
        fences += runs.fences(None, start, end - queue_end - start, others, ids)
    views = urgent[first:end] + runs.views(fences)
    return _Page(views, total - waiting + shown, queue_end if shown < waiting else None, waiting - shown)


def _is_urgent(run: RunView) -> bool:
    return run.pinned or run.state in LIVE_STATES or run.attention is not None


def rank(run: RunView) -> tuple[bool, int, float]:
    """Sort key: pinned runs, then live ones that need attention, other live ones, recently failed, queued, others;
    newest first."""
    if run.state in LIVE_STATES:
        group = 0 if run.attention else 1
    elif run.attention:
        group = 2
    else:
        group = 3 if run.state == State.QUEUED else 4
    return not run.pinned, group, -run.created_at


def row(run: RunView, curve: Curve) -> dict[str, Any]:
    """One run as the table shows it."""
    return {
        "id": run.id,
        "name": run.name,
        "project": run.project,
        "state": run.state,
        "attention": run.attention,
        "note": note(run),
        "tags": run.tags,
        "own_note": run.note,
        "pinned": run.pinned,
        "baseline": run.baseline,
        "archived": run.archived,
        "imported_from": run.imported_from,
        "watched": run.watched is not None,
        "progress": run.progress,
        "step": run.step,
        "total_steps": run.total_steps,
        "current_epoch": run.current_epoch,
        "total_epochs": run.total_epochs,
        "loss": run.last_loss,
        "curve": curve,
        "throughput": run.throughput,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
    }


def note(run: RunView) -> str:
    """Why a run waits or failed, or what is unusual about it, in a few words."""
    if run.state in (State.QUEUED, State.STARTING, State.STOPPING) and run.waiting_for:
        return run.waiting_for
    remarks = [run.delivery.sentence] if run.delivery else []
    if run.state == State.FAILED:
        why = f"{run.reason}: {run.message}" if run.reason and run.message else run.message or ""
        return " · ".join(filter(None, [why, *remarks]))
    if run.lost_contact:
        remarks.append("lost contact")
    if run.finding:
        remarks.append(run.finding)
    elif not_finite_text := not_finite(run.last_loss, run.loss_not_finite_since):
        remarks.append(f"the loss is {not_finite_text}")
    return ", ".join(remarks)


# The small loss curves of the table of runs, read for a whole window at once and only after a new step.

CURVE_POINTS = 40
MOST_CURVES = 5000
MOST_POWER = 300.0
"""Of ten, times a value: what is smaller than its inverse counts as 0."""
Curve = list[float] | None
_Key = tuple[Store, str, int, int]


def _read(store: Store, runs: Sequence[RunView]) -> dict[str, Curve]:
    """The curves of runs with one attempt in a few queries; those of others are joined over their attempts."""
    curves: dict[str, Curve] = dict.fromkeys(run.id for run in runs)
    with store.read() as session:
        losses = _losses(loss_rows(session, [run.id for run in runs if run.attempt == 1]))
        read = thinned_columns(session, [*losses.values()], CURVE_POINTS, StepRange())
    curves |= dict(zip(losses, _rounded([read[row.id][1] for row in losses.values()]), strict=True))
    return curves | {run.id: _over_attempts(store, run.id) for run in runs if run.attempt > 1}


def _losses(rows: Iterable[SeriesRow]) -> dict[str, SeriesRow]:
    """The series that is the loss of each run, by its id; a logged loss takes the place of a printed one."""
    named = dict[tuple[str, str], dict[str, SeriesRow]]()
    for row in rows:
        named.setdefault((row.source, row.run_id), {})[row.tag] = row
    losses = {key: tags[name] for key, tags in named.items() if (name := main_loss(tags))}
    in_order = sorted(losses.items(), key=lambda item: -SCRIPT_KINDS.index(item[0][0]))
    return {run_id: row for (_, run_id), row in in_order}


def _over_attempts(store: Store, run_id: str) -> Curve:
    """The curve over all attempts: of the logged loss, else of the printed one."""
    for source in SCRIPT_KINDS:
        prefix = "" if source == "events" else f"{source}/"
        tags = [name.removeprefix(prefix) for name in series_names(store, run_id, source)]
        if (tag := main_loss(tags)) is not None:
            named = series(store, run_id, [prefix + tag], source, max_points=CURVE_POINTS)
            values = [value for _, value, _ in named[prefix + tag].points]
            return _rounded([np.array(values)])[0]
    return None


def _rounded(curves: Sequence[NDArray[np.float64]]) -> list[Curve]:
    """The finite values of each curve to four digits; None for fewer than two."""
    values = np.concatenate([*curves, np.empty(0)])
    finite = np.isfinite(values)
    ends = np.cumsum([0, *map(len, curves)])
    counts = np.concatenate([[0], np.cumsum(finite)])[ends].tolist()
    rounded = _to_four_digits(values[finite]).tolist()
    return [rounded[first:end] if end - first > 1 else None for first, end in pairwise(counts)]


def _to_four_digits(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to four significant digits, as `f"{value:.4g}"` does: a whole number, multiplied or divided by a power of
    ten, is the number nearest to those decimals."""
    exponents = 3 - np.floor(np.log10(np.where(values == 0, 1, np.abs(values))))
    up, down = (10 ** np.clip(signed_exponents, 0, MOST_POWER) for signed_exponents in (exponents, -exponents))
    rounded: NDArray[np.float64] = np.rint(values * up / down) * down / up
    return rounded
