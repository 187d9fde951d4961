"""What compared runs spend their steps on, a row for each phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from db.engine import Store
from db.metrics.phases import mean_step
from domain import goals
from domain.performance.phases import TITLES

TITLES_OF_STEP = {"step_s": "Step", **TITLES}
LEAST_S = 1e-5
"""A shorter phase does not matter in a step."""
MOST_RUNS = 20
"""Of more runs the phases are not read: their series are many."""


def step_phases(store: Store, runs: Sequence[str], baseline: str | None) -> list[dict[str, Any]]:
    """Return the mean seconds of a step and of its phases in each run, over all ranks, with changes to the baseline.

    Runs of which the probe saw no steps are left out; nothing is returned for more than `MOST_RUNS` runs."""
    if len(runs) > MOST_RUNS:
        return []
    known = {run_id: mean_step(store, run_id) for run_id in dict.fromkeys([*runs, *filter(None, [baseline])])}
    base = known.get(baseline or "", {})
    steps = {run_id: known[run_id] for run_id in runs if known[run_id]}
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
