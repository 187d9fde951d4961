"""The small loss curves of the table of runs, read for a whole window at once and only after a new step."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from db.engine import Store
from db.metrics.curves import series, series_names
from db.metrics.many_curves import SeriesRow, StepRange, series_rows, thinned_points
from db.metrics.series_names import main_loss
from domain.messages import SCRIPT_KINDS
from domain.views import RunView

CURVE_POINTS = 40
MOST_CURVES = 5000
Curve = list[float] | None
_Key = tuple[Store, str, int, int]


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


def _read(store: Store, runs: Sequence[RunView]) -> dict[str, Curve]:
    """The curves of runs with one attempt in a few queries; those of others are joined over their attempts."""
    ids = [run.id for run in runs if run.attempt == 1]
    curves: dict[str, Curve] = dict.fromkeys(run.id for run in runs)
    with store.read() as session:
        losses: dict[str, SeriesRow] = {}
        for source in reversed(SCRIPT_KINDS):  # a logged loss takes the place of a printed one
            losses |= _losses(series_rows(session, ids, sources=[source]))
        read = thinned_points(session, [*losses.values()], CURVE_POINTS, StepRange())
    curves |= {run_id: _rounded(value for _, value, _ in read[row.id]) for run_id, row in losses.items()}
    return curves | {run.id: _over_attempts(store, run.id) for run in runs if run.attempt > 1}


def _losses(rows: Iterable[SeriesRow]) -> dict[str, SeriesRow]:
    """The series that is the loss of each run, by its id."""
    series: dict[str, dict[str, SeriesRow]] = {}
    for row in rows:
        if row.node_rank == 0:
            series.setdefault(row.run_id, {})[row.tag] = row
    return {run_id: tags[name] for run_id, tags in series.items() if (name := main_loss(tags))}


def _over_attempts(store: Store, run_id: str) -> Curve:
    """The curve over all attempts: of the logged loss, else of the printed one."""
    for source in SCRIPT_KINDS:
        prefix = "" if source == "events" else f"{source}/"
        tags = [name.removeprefix(prefix) for name in series_names(store, run_id, source)]
        if (tag := main_loss(tags)) is not None:
            named = series(store, run_id, [prefix + tag], source, max_points=CURVE_POINTS)
            return _rounded(value for _, value, _ in named[prefix + tag].points)
    return None


def _rounded(curve: Iterable[float]) -> Curve:
    finite = [float(f"{value:.4g}") for value in curve if math.isfinite(value)]
    return finite if len(finite) > 1 else None
