"""The tool `curve`: which series a run has, and fifty numbers of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from dashboard.agents.answers import answer, picked, rounded
from dashboard.agents.own_api import ToolRefused
from dashboard.agents.tool import Arguments, Call, Cursor, Run, Tool, cursors_of, offset_of

POINTS = 50
Step = Annotated[int, Field(ge=-1, le=2**53)]


class CurveWanted(Arguments):
    """Which series, and which of its steps."""

    run: Run
    series: Annotated[str, Field(max_length=500, description="Without it: the run's series with their results.")] = ""
    since: Step = 0
    until: Annotated[Step, Field(description="-1: to the end.")] = -1
    cursor: Cursor = ""


async def curve(call: Call, arguments: CurveWanted) -> str:
    """Give at most fifty points of a series, its lowest and highest among them; without one, list the series.

    Raises ToolRefused where it has none."""
    run_id = await call.run_id(arguments.run)
    if not arguments.series:
        return await _series(call, run_id, arguments)
    window = {"since": arguments.since or None, "until": arguments.until if arguments.until >= 0 else None}
    path = f"/api/runs/{run_id}/metrics"
    found = await call.api.ask("GET", path, name=arguments.series, source="all", max_points=POINTS, **window)
    points = [(step, rounded(value)) for step, value, _ in found.get(arguments.series, [])]
    if not points:
        raise ToolRefused("The run has no such points; call `curve` without `series` for those that it has.", 404)
    head = {"run": run_id, "series": arguments.series, "points": [list(point) for point in thinned(points, POINTS)]}
    return answer(head, arguments.limit)


async def _series(call: Call, run_id: str, arguments: CurveWanted) -> str:
    start = offset_of(arguments.cursor)
    compared = await call.api.ask("GET", "/api/compare", runs=run_id, baseline="none")
    rows = [{"series": one["name"]} | result_of(one["runs"].get(run_id, {})) for one in compared["series"]][start:]
    return answer({"run": run_id}, arguments.limit, ("series", rows), cursors_of(start, rows))


def result_of(figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a series' result in a run."""
    return picked(figures, ("last", "best", "lowest", "highest", "steps"))


def thinned(points: Sequence[tuple[int, Any]], most: int) -> list[tuple[int, Any]]:
    """At most so many of the points: the first, the last, the lowest, the highest, those that are no numbers first
    appear at, and between them others at even distances."""
    if len(points) <= most:
        return list(points)
    numbers = [number for number, (_, value) in enumerate(points) if isinstance(value, int | float)]
    words = [number for number, (_, value) in enumerate(points) if isinstance(value, str)]
    thinned_points = {0, len(points) - 1, *words[:1]}
    if numbers:
        thinned_points |= {extreme(numbers, key=lambda number: points[number][1]) for extreme in (min, max)}
    others = [number for number in range(len(points)) if number not in thinned_points]
    free = most - len(thinned_points)
    thinned_points |= {others[position * len(others) // free] for position in range(free)}
    return [points[number] for number in sorted(thinned_points)]


TOOLS = (
    Tool(
        "curve",
        "At most 50 [step, value] of a series, lowest and highest among them; NaN and Infinity are words.",
        CurveWanted,
        curve,
    ),
)
