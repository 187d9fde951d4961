"""One name for the same figure of different loggers, where several runs stand beside each other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from db.engine import Store
from db.metrics.curves import sources_of_runs
from db.metrics.run_results import SeriesResult, without_repeated
from domain.messages import SCRIPT_KINDS
from domain.series.goals import joined_names

Names = Mapping[str, str]
T = TypeVar("T")


def joined(store: Store, run_ids: Collection[str]) -> dict[str, dict[str, str]]:
    """Return what series are called beside those of the other runs: {run id: {"printed/loss": "loss"}}."""
    return _joined(_logged(store, run_ids))


def own_names(store: Store, run_ids: Collection[str]) -> dict[str, dict[str, str]]:
    """Return what each run calls a series that charts show under one name: {"loss": {run id: "printed/loss"}}."""
    logged = _logged(store, run_ids)
    names = _joined(logged)
    own: dict[str, dict[str, str]] = {}
    for run_id, of_run in logged.items():
        for shown, name in renamed({name: name for name in of_run}, names.get(run_id, {})).items():
            own.setdefault(shown, {})[run_id] = name
    return own


def _logged(store: Store, run_ids: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the source of each series that the script itself reports, for each run."""
    by_run = sources_of_runs(store, run_ids)
    return {
        run_id: {name: source for name, source in of_run.items() if source in SCRIPT_KINDS}
        for run_id, of_run in by_run.items()
    }


def _joined(logged: Mapping[str, Names]) -> dict[str, dict[str, str]]:
    return joined_names({run_id: without_repeated(of_run) for run_id, of_run in logged.items()})


def renamed(of_run: Mapping[str, T], names: Names) -> dict[str, T]:
    """Return what a run has of each series by the name that it has beside other runs."""
    return {names.get(name, name): of_series for name, of_series in of_run.items()}


def results_by_shown_name(by_run: Mapping[str, Mapping[str, SeriesResult]]) -> dict[str, dict[str, SeriesResult]]:
    """Return the results of each run by the names that its series have beside the other runs."""
    once = {run_id: without_repeated(of_run) for run_id, of_run in by_run.items()}
    names = joined_names(once)
    return {run_id: renamed(of_run, names.get(run_id, {})) for run_id, of_run in once.items()}
