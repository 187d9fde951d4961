"""How the ranks of a run divide the time of a step, and which of them the others wait for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from db.metrics.performance import phase_totals
from domain.performance.phases import PHASES, TITLES, PhaseTotals, breakdown
from domain.performance.slow_ranks import slow_ranks

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])
MOST_SPANS = 120
SLOW = ("rank", "node", "cause", "lost_share")


@router.get("/runs/{run_id}/phases")
def phases(
    service: TheService,
    run_id: str,
    rank: Annotated[int | None, Query(ge=0, description="Only this rank.")] = None,
    since: Annotated[int | None, Query(ge=0, description="Only steps after this one.")] = None,
) -> Response:
    """Mean seconds of a step in each phase, by rank, and the slow ranks of the latest attempt."""
    totals, world_size = phase_totals(service.store, run_id, since)
    slow = [asdict(verdict) for verdict in slow_ranks(totals, world_size)]
    breakdowns = {
        str(one.rank): means
        for one in totals
        if rank in (None, one.rank) and (means := breakdown(one, is_whole=not since))
    }
    return answer({"ranks": breakdowns, "slow": [{name: verdict[name] for name in SLOW} for verdict in slow]})


@router.get("/runs/{run_id}/phases/spans")
def phases_over_time(service: TheService, run_id: str) -> Response:
    """The phases of each rank in the recent minutes, as means over spans of steps that all ranks share.

    {"phases": names, "titles": {name: title}, "steps": edges of the spans, "walls": times of the edges,
    "ranks": [{"rank", "node", "seconds": {phase: [mean or null, …]}}]}"""
    totals, _ = phase_totals(service.store, run_id)
    edges = _edges(totals)
    longest = max(totals, key=lambda one: one.steps[-1], default=None)
    return answer(
        {
            "phases": PHASES,
            "titles": TITLES,
            "steps": edges,
            "walls": [longest.wall(step) for step in edges] if longest else [],
            "ranks": [_over_time(one, edges) for one in totals],
        }
    )


def _edges(ranks: Collection[PhaseTotals]) -> list[int]:
    """Return the steps between which a mean is drawn: as many as there are records, at most `MOST_SPANS` spans."""
    records = max((len(totals.steps) for totals in ranks), default=0)
    if records < 2:
        return []
    first, last = min(totals.steps[0] for totals in ranks), max(totals.steps[-1] for totals in ranks)
    spans = min(MOST_SPANS, records - 1, last - first)
    return [first + round((last - first) * number / spans) for number in range(spans + 1)]


def _over_time(totals: PhaseTotals, edges: Sequence[int]) -> dict[str, Any]:
    means = [
        totals.mean(begin, end) if totals.steps[0] <= begin and end <= totals.steps[-1] else None
        for begin, end in pairwise(edges)
    ]
    seconds = {name: [mean and mean[name] for mean in means] for name in PHASES}
    return {"rank": totals.rank, "node": totals.node, "seconds": seconds}
