"""Compare runs: their settings and interpreters, and the code of two."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.compare.spec_changes import (
    Difference,
    SpecChange,
    interpreter_differences,
    masked,
    spec_differences,
)
from dashboard.service.service import Service
from dashboard.snapshots.differences import CodeDifference, compare
from dashboard.snapshots.git_address import CodeRefused
from dashboard.snapshots.stored_snapshots import Snapshots
from db.engine import Store
from db.runs.compared_runs import ComparedRun, compared_runs
from domain.choices import RECIPES
from domain.spec import RunSpec
from domain.views import RunView

MOST_KEPT = 8


@dataclass(frozen=True)
class CodeComparison:
    """The code of two runs."""

    difference: CodeDifference
    same: bool | None
    """None where the code of one of the runs was not stored."""
    note: str | None = None
    """Why files were not compared."""


class _Comparer:
    """A cached comparison that runs once at a time, because it is CPU-bound in the server's process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cache: OrderedDict[tuple[str, str], CodeDifference] = OrderedDict()

    def compare(self, snapshots: Snapshots, old: str, new: str) -> CodeDifference:
        """Compare two snapshots, or return the cached result: snapshots never change. Raises CodeRefused."""
        with self._lock:
            difference = self._cache.pop((old, new), None)
            if difference is None:
                difference = compare(snapshots.path(old), snapshots.path(new))
            self._cache[old, new] = difference
            while len(self._cache) > MOST_KEPT:
                self._cache.popitem(last=False)
            return difference


_comparer = _Comparer()


def setting_changes(store: Store, old: RunView, new: RunView) -> list[SpecChange]:
    """Return the differences of two runs' specs and interpreters, secrets masked."""
    compared = compared_runs(store, [old.id, new.id])
    if len(compared) < 2 and old.id != new.id:  # deleted meanwhile
        return []
    pair = [compared[run.id] for run in (old, new)]
    return [SpecChange(row.field, row.label, *row.values) for row in setting_differences(pair)]


def setting_differences(runs: Sequence[ComparedRun]) -> list[Difference]:
    """Return the differences of the runs' specs and interpreters, secrets masked."""
    specs, interpreters = [run.spec for run in runs], [run.interpreter for run in runs]
    return [*map(masked, spec_differences(specs)), *interpreter_differences(interpreters)]


def code(service: Service, old: RunView, new: RunView) -> CodeComparison:
    """Compare the code of two runs; may take seconds the first time."""
    before, after = old.spec, new.spec
    if before.snapshot and after.snapshot:
        return _of_snapshots(service.snapshots, before.snapshot, after.snapshot)
    if is_recipe(before) and is_recipe(after):
        return _of_recipes(before.target, after.target)
    unkept = [run for run in (old, new) if not (is_recipe(run.spec) or run.spec.snapshot)]
    if unkept:
        return CodeComparison(CodeDifference(), None, f"The code of run {unkept[0].id} was not stored.")
    recipe = old if is_recipe(before) else new
    note = f"Run {recipe.id} trains a recipe that ships with Rankzero; the other run has its own code."
    return CodeComparison(CodeDifference(), False, note)


def is_recipe(spec: RunSpec) -> bool:
    """Whether the run trains a recipe that ships with Rankzero."""
    return spec.target in RECIPES


def _of_snapshots(snapshots: Snapshots, old: str, new: str) -> CodeComparison:
    if old == new:
        return CodeComparison(CodeDifference(), True)
    try:
        difference = _comparer.compare(snapshots, old, new)
    except CodeRefused:
        unreadable = old if snapshots.find(old) is None else new
        note = f"The snapshot {unreadable[:12]} can no longer be read."
        return CodeComparison(CodeDifference(), None, note)
    return CodeComparison(difference, not difference.files)  # no file differs, only empty folders do


def _of_recipes(old: str, new: str) -> CodeComparison:
    if old == new:
        return CodeComparison(CodeDifference(), True, f"Both train the recipe {old} that ships with Rankzero.")
    note = f"They train two recipes that ship with Rankzero: {old} and {new}."
    return CodeComparison(CodeDifference(), False, note)
