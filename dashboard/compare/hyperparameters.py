"""The hyperparameters in which runs differ, as their scripts told them to their loggers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dashboard.compare.spec_changes import Difference
from dashboard.logs.logged_settings import MOST_BYTES, Settings, flat, merge
from dashboard.storage.files import Files
from db.engine import Store
from db.runs.compared_runs import settings_files
from domain.masking import masked_variable


def hyperparameter_differences(store: Store, files: Files, run_ids: Sequence[str]) -> list[Difference]:
    """Return the logged hyperparameters in which the runs differ, secrets masked; numbers as numbers."""
    settings = settings_files(store, run_ids)
    by_run = [_hyperparameters(files, settings.get(run_id, ())) for run_id in run_ids]
    names = dict.fromkeys(name for own in by_run for name in own)
    columns = {name: tuple(own.get(name) for own in by_run) for name in names}
    return [
        Difference(f"logged.{name}", f"Logged {name}", values)
        for name, values in columns.items()
        if any(value != values[0] for value in values)
    ]


def _hyperparameters(files: Files, settings: Sequence[tuple[int, int]]) -> dict[str, float | str]:
    """Return the hyperparameters of all loggers of a run by name; of two with the same name, the first."""
    merged: Settings = {}
    for file_id, size_bytes in settings:
        data = files.read(file_id, max(0, size_bytes - MOST_BYTES), MOST_BYTES)
        merge(merged, data.splitlines())
    pairs = [pair for _, own in sorted(merged.items()) for pair in flat(own.get("config"))]
    return {name: _number(masked_variable(name, text)) for name, text in reversed(pairs)}


def _number(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text
