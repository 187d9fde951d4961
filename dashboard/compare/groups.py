"""Groups of compared runs with the same settings, and the mean and spread of their results."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dashboard.compare.spec_changes import Difference
from db.metrics.run_results import SeriesResult
from domain.goals import change_percent


def groups(runs: Sequence[str], differences: Iterable[Difference], fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return groups of runs with the same values of the fields, in the order of their first runs.

    A field in which the runs do not differ divides nothing."""
    columns = {row.field: row.values for row in differences if row.field in fields}
    chosen = [field for field in fields if field in columns]
    by_key: dict[str, dict[str, Any]] = {}
    for position, run_id in enumerate(runs):
        values = {field: columns[field][position] for field in chosen}
        by_key.setdefault(repr(values), {"values": values, "runs": []})["runs"].append(run_id)
    return list(by_key.values())


def group_results(
    group: Sequence[str], results: Mapping[str, SeriesResult], base: SeriesResult | None = None
) -> dict[str, Any]:
    """Return the summaries of the last and the best values of a group's runs in one series."""
    own = [results[run_id] for run_id in group if run_id in results]
    return {
        "last": summary((result.last for result in own), base.last if base else None),
        "best": summary((result.best for result in own), base.best if base else None),
    }


def summary(values: Iterable[float | None], base: float | None = None) -> dict[str, Any] | None:
    """Return the mean of the finite values, their spread and count; None without any.

    The spread is the sample's standard deviation, None for a single value. With the baseline's value also the
    change of the mean to it, in per cent."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return None
    spread = statistics.stdev(finite) if len(finite) > 1 else None
    mean = statistics.fmean(finite)
    change = {"change_percent": change_percent(mean, base)} if base is not None else {}
    return {"mean": mean, "spread": spread, "count": len(finite)} | change
