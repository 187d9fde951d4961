"""A comparison of runs as one document: only what differs between them, and what became of each series."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dashboard.compare.joined_series import renamed
from dashboard.compare.runs import setting_differences
from dashboard.compare.spec_changes import Difference
from dashboard.logs.logged_settings import MOST_BYTES, Settings, flat, merge
from dashboard.storage.files import Files
from db.engine import Store
from db.metrics.performance import mean_step
from db.metrics.run_results import SeriesResult, results, without_repeated
from db.runs.compared_runs import ComparedRun, settings_files
from domain.masking.masking import masked_variable
from domain.performance.phases import LEAST_S, TITLES
from domain.series import goals
from domain.series.goals import change_percent, joined_names


def comparison(
    store: Store,
    files: Files,
    runs: Sequence[ComparedRun],
    baseline: ComparedRun | None = None,
    group: Sequence[str] = (),
) -> dict[str, Any]:
    """Return `differences`, `series` and `phases` of the runs; with a baseline, changes to it in per cent.

    The same figure of different loggers is one of `series`, whose `own_names` say what a run calls it.
    With fields to group by, also the `groups` of runs that have the same values of them, and each group's results."""
    ids = [run.id for run in runs]
    results_by_run = results(store, [*ids, *([baseline.id] if baseline else [])])
    by_run = {run_id: without_repeated(of_run) for run_id, of_run in results_by_run.items()}
    joined = joined_names(by_run)
    by_run = {run_id: renamed(of_run, joined.get(run_id, {})) for run_id, of_run in by_run.items()}
    base = results_by_run[baseline.id] | by_run[baseline.id] if baseline else {}
    by_run = {run_id: by_run[run_id] for run_id in ids}
    names = sorted({name for of_run in by_run.values() for name in of_run})
    own_names = {(run_id, shown): own for run_id, of_run in joined.items() for own, shown in of_run.items()}
    differing = [*differences(runs), *hyperparameter_differences(store, files, ids)]
    grouped = groups(ids, differing, group) if group else None
    document = {
        "runs": ids,
        "names": {run.id: run.name for run in runs},
        "states": {run.id: run.state for run in runs},
        "baseline": baseline.id if baseline else None,
        "baseline_name": baseline.name if baseline else None,
        "differences": [_document(difference, ids) for difference in differing],
        "series": [
            _series(name, by_run, base.get(name), grouped)
            | {"own_names": {run_id: own_names[run_id, name] for run_id in ids if (run_id, name) in own_names}}
            for name in names
        ],
        "phases": step_phases(store, ids, baseline.id if baseline else None),
    }
    return document | ({"groups": grouped} if grouped is not None else {})


def differences(runs: Sequence[ComparedRun]) -> list[Difference]:
    """Return the settings in which the runs differ, then their code, nodes and ends."""
    return [*setting_differences(runs), *_facts(runs)]


def _facts(runs: Sequence[ComparedRun]) -> Iterator[Difference]:
    facts = (
        (
            "snapshot",
            "Code snapshot",
            [run.spec.snapshot[:12] if run.spec.snapshot else None for run in runs],
        ),
        ("nodes_used", "Nodes used", [run.nodes for run in runs]),
        ("state", "State", [run.state for run in runs]),
        ("reason", "Reason", [run.reason for run in runs]),
    )
    for field, label, values in facts:
        if any(value != values[0] for value in values):
            yield Difference(field, label, tuple(values))


def _document(difference: Difference, ids: Sequence[str]) -> dict[str, Any]:
    values = dict(zip(ids, difference.values, strict=True))
    return {"field": difference.field, "label": difference.label, "values": values}


def _series(
    name: str,
    by_run: Mapping[str, Mapping[str, SeriesResult]],
    base: SeriesResult | None,
    grouped: Sequence[Mapping[str, Any]] | None,
) -> dict[str, Any]:
    of_run = {run_id: results[name] for run_id, results in by_run.items() if name in results}
    series: dict[str, Any] = {
        "name": name,
        "goal": goals.goal(name),
        "runs": {run_id: _result(result, base) for run_id, result in of_run.items()},
    }
    if base is not None:
        series["baseline"] = asdict(base)
    if grouped is not None:
        series["groups"] = [group_results(group["runs"], of_run, base) for group in grouped]
    return series


def _result(result: SeriesResult, base: SeriesResult | None) -> dict[str, Any]:
    figures: dict[str, Any] = asdict(result)
    if base is not None:
        figures["last_change_percent"] = goals.change_percent(result.last, base.last)
        figures["best_change_percent"] = goals.change_percent(result.best, base.best)
    return figures


# Groups of compared runs with the same settings, and the mean and spread of their results.


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


# The hyperparameters in which runs differ, as their scripts told them to their loggers.


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


# What compared runs spend their steps on, a row for each phase.

TITLES_OF_STEP = {"step_s": "Step", **TITLES}
MOST_RUNS = 20
"""Of more runs the phases are not read: their series are many."""


def step_phases(store: Store, runs: Sequence[str], baseline: str | None) -> list[dict[str, Any]]:
    """Return the mean seconds of a step and of its phases in each run, over all ranks, with changes to the baseline.

    Runs of which the probe saw no steps are left out; nothing is returned for more than `MOST_RUNS` runs."""
    if len(runs) > MOST_RUNS:
        return []
    mean_steps = {run_id: mean_step(store, run_id) for run_id in dict.fromkeys([*runs, *filter(None, [baseline])])}
    base = mean_steps.get(baseline or "", {})
    steps = {run_id: mean_steps[run_id] for run_id in runs if mean_steps[run_id]}
    return [
        {
            "name": name,
            "title": title,
            "runs": {run_id: _figure(step[name], base.get(name)) for run_id, step in steps.items()},
        }
        for name, title in TITLES_OF_STEP.items()
        if any(step[name] >= LEAST_S for step in steps.values())
    ]


def _figure(seconds: float, base: float | None) -> dict[str, float | None]:
    has_base = base is not None and base >= LEAST_S
    change = {"change_percent": goals.change_percent(seconds, base)} if has_base else {}
    return {"seconds": seconds, **change}
