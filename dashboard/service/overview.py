"""The table of runs for the browser: urgent runs first, a small loss curve each, in compact JSON values."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

from db.engine import Store
from db.metrics.curves import main_loss
from db.queries import run_queries
from db.queries.run_queries import number_in
from domain.messages import LIVE_STATES, State
from domain.text.formats import not_finite
from domain.views import RunView

MOST_ROWS = 200
MOST_QUEUED = 50
"""Limit on queued runs: a long queue leaves rows to runs that train, failed or ended."""
CURVE_POINTS = 40


class Filter(NamedTuple):
    """The selected runs; all of them by default."""

    text: str = ""
    states: tuple[State, ...] = ()
    project: str = ""


EVERYTHING = Filter()


def overview(store: Store, now: float, run_filter: Filter = EVERYTHING) -> dict[str, Any]:
    """Rows in the order of `rank`, the number of queued runs, and whether older runs were left out."""
    other_states = [state for state in run_filter.states or State if state != State.QUEUED]
    asks_for_queued = not run_filter.states or State.QUEUED in run_filter.states
    not_queued = _runs(store, now, run_filter, other_states, MOST_ROWS)
    most_queued = MOST_QUEUED if other_states else MOST_ROWS
    queued = _runs(store, now, run_filter, [State.QUEUED], most_queued) if asks_for_queued else []
    rows = [row(store, run) for run in sorted([*not_queued, *queued], key=rank)]
    return {
        "runs": rows,
        "queued": number_in(store, State.QUEUED) if len(queued) == most_queued else len(queued),
        "is_cut": len(not_queued) == MOST_ROWS,
    }


def rank(run: RunView) -> tuple[int, float]:
    """Sort key: live runs that need attention, other live ones, recently failed, queued, others; newest first."""
    if run.state in LIVE_STATES:
        group = 0 if run.attention else 1
    elif run.attention:
        group = 2
    else:
        group = 3 if run.state == State.QUEUED else 4
    return group, -run.created_at


def row(store: Store, run: RunView) -> dict[str, Any]:
    """One run as the table shows it."""
    return {
        "id": run.id,
        "name": run.name,
        "project": run.project,
        "state": run.state,
        "attention": run.attention,
        "note": note(run),
        "progress": run.progress,
        "step": run.step,
        "total_steps": run.total_steps,
        "loss": run.last_loss,
        "curve": loss_curve(store, run.id, run.attempt, run.step),
        "throughput": run.throughput,
        "created_at": run.created_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
    }


def note(run: RunView) -> str:
    """Why a run waits or failed, or what is unusual about it, in a few words."""
    if run.state in (State.QUEUED, State.STARTING, State.STOPPING) and run.waiting_for:
        return run.waiting_for
    if run.state == State.FAILED:
        return f"{run.reason}: {run.message}" if run.reason and run.message else run.message or ""
    remarks = ["lost contact"] if run.lost_contact else []
    if run.finding:
        remarks.append(run.finding)
    elif not_finite_text := not_finite(run.last_loss, run.loss_not_finite_since):
        remarks.append(f"the loss is {not_finite_text}")
    return ", ".join(remarks)


@lru_cache(maxsize=4 * MOST_ROWS)
def loss_curve(store: Store, run_id: str, attempt: int, step: int | None) -> list[float] | None:
    """The loss in a few points; read again only after a new step."""
    name = main_loss(run_queries.series_names(store, run_id)) if step is not None else None
    if name is None:
        return None
    points = run_queries.series(store, run_id, [name], max_points=CURVE_POINTS)[name].points
    finite = [float(f"{value:.4g}") for _, value, _ in points if math.isfinite(value)]
    return finite if len(finite) > 1 else None


def _runs(
    store: Store, now: float, run_filter: Filter, states: Collection[State], limit: int
) -> list[RunView]:
    if not states:
        return []
    return run_queries.runs(store, now, states, run_filter.text, run_filter.project, limit, urgent_first=True)
