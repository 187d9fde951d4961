"""The curves of a sweep's trials and the importance of its parameters, for its page."""

from __future__ import annotations

from typing import Any

from db.engine import Store
from db.metrics import curves
from db.sweeps.sweeps import SweepView

MOST_POINTS = 20_000
"""Of all curves together."""
MOST_OF_A_CURVE = 300


def picture(store: Store, sweep: SweepView) -> dict[str, Any]:
    """Return the scale of each parameter, their importance, and the points of each trial's metric."""
    most = max(2, min(MOST_OF_A_CURVE, MOST_POINTS // max(1, len(sweep.trials))))
    scales = {
        name: "list" if parameter.values is not None else "log" if parameter.log else "linear"
        for name, parameter in sweep.plan.parameters.items()
    }
    lines = [_curve(store, trial.run_id, sweep.plan.metric, most) for trial in sweep.trials]
    return {"scales": scales, "importance": _importance(sweep), "curves": lines}


def _importance(sweep: SweepView) -> dict[str, float] | None:
    from dashboard.sweeps.engine import importance  # Optuna takes a second to import

    return importance(sweep)


def _curve(store: Store, run_id: str | None, metric: str, most: int) -> list[list[float | str]]:
    """Return [[step, value], …] of the metric: from the event files, else from what the run printed."""
    if run_id is None:
        return []
    points = curves.of_metric(store, run_id, metric, most)
    return [[step, curves.to_json_number(value)] for step, value, _ in points]
