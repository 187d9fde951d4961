"""The tool `ranks`: which rank is slow, and where the time of a step goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.agents.answers import Own, answer, picked, present, rounded
from dashboard.agents.tool import Arguments, Call, Cursor, Run, Tool, cursors_of, offset_of

RANK = ("rank", "node", "step", "step_time_s", "data_wait_s", "peak_memory_bytes")
LEAST_S = 0.0005
"""Phases that take less say nothing."""
UNWATCHED = Own("No rank has reported its steps: the run has just begun, has ended long ago, or is not probed.")


class RanksWanted(Arguments):
    """Of which run."""

    run: Run
    cursor: Cursor = ""


async def ranks(call: Call, arguments: RanksWanted) -> str:
    """Name the slow ranks and their cause, then list the ranks with the seconds of their steps, the slowest first."""
    run_id, start = await call.run_id(arguments.run), offset_of(arguments.cursor)
    views = await call.api.ask("GET", f"/api/runs/{run_id}/ranks")
    phases = await call.api.ask("GET", f"/api/runs/{run_id}/phases")
    rows = [picked(view, RANK) | {"seconds": _seconds(phases["ranks"].get(str(view["rank"]), {}))} for view in views]
    slow = [one["rank"] for one in phases["slow"]]
    rows.sort(key=lambda row: (row["rank"] not in slow, -row.get("step_time_s", 0), row["rank"]))
    head = {"slow": [picked(one, ("rank", "node", "cause", "lost_share")) for one in phases["slow"]]}
    left = rows[start:]
    said = present({"note": None if rows else UNWATCHED})
    return answer({"run": run_id} | head | said, arguments.limit, ("ranks", left), cursors_of(start, left))


def _seconds(phases: Mapping[str, Any]) -> dict[str, Any]:
    """Return the phases of a step that take time, the longest first."""
    longest = sorted(phases.items(), key=lambda phase: -phase[1])
    return {name: rounded(seconds) for name, seconds in longest if name.endswith("_s") and seconds >= LEAST_S}


TOOLS = (Tool("ranks", "Which rank is slow and why, and the seconds of a step by phase and rank.", RanksWanted, ranks),)
