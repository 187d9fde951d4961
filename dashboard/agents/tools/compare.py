"""The tool `compare`: in which settings runs differ, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from dashboard.agents.answers import answer, rounded
from dashboard.agents.own_api import ToolRefused
from dashboard.agents.tool import Arguments, Call, Cursor, Run, Tool, cursors_of, offset_of
from dashboard.agents.tools.curves import result_of


class ComparisonWanted(Arguments):
    """Which runs."""

    runs: Annotated[list[Run], Field(min_length=2, max_length=8)]
    cursor: Cursor = ""


async def compare(call: Call, arguments: ComparisonWanted) -> str:
    """List the settings in which the runs differ, then the results of every series. Raises ToolRefused for one run."""
    ids, start = [await call.run_id(word) for word in arguments.runs], offset_of(arguments.cursor)
    if len(set(ids)) < 2:
        raise ToolRefused("Name at least two different runs; these words mean one.")
    compared = await call.api.ask("GET", "/api/compare", runs=",".join(ids), baseline="none")
    rows = [*map(_setting, compared["differences"]), *map(_series, compared["series"])][start:]
    runs = [{"id": one, "state": compared["states"][one], "name": compared["names"][one]} for one in compared["runs"]]
    return answer({"runs_compared": runs}, arguments.limit, ("rows", rows), cursors_of(start, rows))


def _setting(difference: Mapping[str, Any]) -> dict[str, Any]:
    values = [{"run": run_id, "value": _value(value)} for run_id, value in difference["values"].items()]
    return {"setting": difference["field"], "values": values}


def _value(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) or value is None else str(rounded(value))


def _series(series: Mapping[str, Any]) -> dict[str, Any]:
    results = [{"run": run_id} | result_of(figures) for run_id, figures in series["runs"].items()]
    return {"series": series["name"], "goal": series["goal"], "results": results}


TOOLS = (Tool("compare", "Compare 2 to 8 runs: differing settings first, then results.", ComparisonWanted, compare),)
