"""The table of runs as the browser asks for it: what matters first, a tiny curve with each, in compact JSON values."""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

from db.engine import Store
from db.metrics.curves import main_loss
from db.queries import run_queries
from db.queries.urgency import number_in
from domain.messages import LIVE_STATES, State
from domain.text.formats import not_finite
from domain.views import RunView

MOST_ROWS = 200
MOST_QUEUED = 50
"""A long queue leaves the other rows to runs that train, failed or ended."""
CURVE_POINTS = 40


class Filter(NamedTuple):
    """The runs that are wanted: all of them by default."""

    text: str = ""
    states: tuple[State, ...] = ()
    project: str = ""


EVERYTHING = Filter()


def overview(store: Store, now: float, wanted: Filter = EVERYTHING) -> dict[str, Any]:
    """Rows in the order of `rank`, how many runs are queued in all, and whether older runs were left out."""
    ended_or_live = [state for state in wanted.states or State if state != State.QUEUED]
    asks_for_queued = not wanted.states or State.QUEUED in wanted.states
    found = _runs(store, now, wanted, ended_or_live, MOST_ROWS)
    most_queued = MOST_QUEUED if ended_or_live else MOST_ROWS
    queued = _runs(store, now, wanted, [State.QUEUED], most_queued) if asks_for_queued else []
    rows = [row(store, run) for run in sorted([*found, *queued], key=rank)]
    return {
        "runs": rows,
        "queued": number_in(store, State.QUEUED) if len(queued) == most_queued else len(queued),
        "is_cut": len(found) == MOST_ROWS,
    }


def rank(run: RunView) -> tuple[int, float]:
    """Live runs that need attention, other live ones, those that failed lately, queued ones, the rest; newest first."""
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
    """Why a run waits or failed, or what is odd about it, in a few words."""
    if run.state in (State.QUEUED, State.STARTING, State.STOPPING) and run.waiting_for:
        return run.waiting_for
    if run.state == State.FAILED:
        return f"{run.reason}: {run.message}" if run.reason and run.message else run.message or ""
    odd = ["lost contact"] if run.lost_contact else []
    if run.finding:
        odd.append(run.finding)
    elif wrong := not_finite(run.last_loss, run.loss_not_finite_since):
        odd.append(f"the loss is {wrong}")
    return ", ".join(odd)


@lru_cache(maxsize=4 * MOST_ROWS)
def loss_curve(store: Store, run_id: str, attempt: int, step: int | None) -> list[float] | None:
    """The loss in a few points, read again only when the run has made a step."""
    name = main_loss(run_queries.series_names(store, run_id)) if step is not None else None
    if name is None:
        return None
    found = run_queries.series(store, run_id, [name], max_points=CURVE_POINTS)[name].points
    finite = [float(f"{value:.4g}") for _, value, _ in found if math.isfinite(value)]
    return finite if len(finite) > 1 else None


def _runs(store: Store, now: float, wanted: Filter, states: Collection[State], limit: int) -> list[RunView]:
    if not states:
        return []
    return run_queries.runs(store, now, states, wanted.text, wanted.project, limit, urgent_first=True)
