"""A comparison of runs as one document: only what differs between them, and what became of each series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dashboard.compare.groups import group_results, groups
from dashboard.compare.hyperparameters import hyperparameter_differences
from dashboard.compare.runs import setting_differences
from dashboard.compare.spec_changes import Difference
from dashboard.compare.step_phases import step_phases
from dashboard.storage.files import Files
from db.engine import Store
from db.metrics.run_results import SeriesResult, results, without_repeated
from db.runs.compared_runs import ComparedRun
from domain import goals
from domain.series.joined import joined_names


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
    found = results(store, [*ids, *([baseline.id] if baseline else [])])
    by_run = {run_id: without_repeated(of_run) for run_id, of_run in found.items()}
    joined = joined_names(by_run)
    by_run = {run_id: _renamed(of_run, joined.get(run_id, {})) for run_id, of_run in by_run.items()}
    base = found[baseline.id] | by_run[baseline.id] if baseline else {}
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


def _renamed(of_run: Mapping[str, SeriesResult], names: Mapping[str, str]) -> dict[str, SeriesResult]:
    return {names.get(name, name): result for name, result in of_run.items()}


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
