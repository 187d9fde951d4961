"""The tool `logs`: lines that contain a text, with a little of what stands around them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from dashboard.agents.answers import answer, picked, size
from dashboard.agents.own_api import ToolRefused
from dashboard.agents.tool import Arguments, Call, Cursor, Run, Tool

MOST_LINES = 30
"""In one answer."""
SEARCHED_LINES = 1000
"""Matching lines of each log that a search finds."""
AROUND_BYTES = 1000
_CURSOR = re.compile(r"(\d{1,12})\.(\d{1,18})\.(\d{1,18})\.(\d{1,12})")


class LogsWanted(Arguments):
    """What to look for, and where."""

    run: Run
    pattern: Annotated[str, Field(min_length=1, max_length=500, description="Text to look for; case is ignored.")]
    rank: Annotated[str, Field(max_length=20, description="A number, `launcher` or `all`.")] = "all"
    stream: Literal["both", "out", "err"] = "both"
    context: Annotated[int, Field(ge=0, le=5, description="Lines before and after.")] = 1
    cursor: Cursor = ""


class LogPlace(NamedTuple):
    """Where a search begins, and how many of its lines were answered before."""

    log: int = 0
    offset: int = 0
    line: int = 1
    skipped: int = 0

    @property
    def cursor(self) -> str:
        """The place as text, for the next call."""
        return ".".join(map(str, self))


async def logs(call: Call, arguments: LogsWanted) -> str:
    """Find the lines of a run's latest attempt that contain a text."""
    run_id, place = await call.run_id(arguments.run), _place(arguments.cursor)
    begin = {"log": place.log, "offset": place.offset, "line": place.line, "limit": SEARCHED_LINES}
    where = {"rank": arguments.rank, "stream": arguments.stream}
    path = f"/api/runs/{run_id}/logs/merged/search"
    page = await call.api.ask("GET", path, q=arguments.pattern, **where, **begin)
    hits = page["hits"][place.skipped : place.skipped + MOST_LINES]
    lines, room = list[dict[str, Any]](), arguments.limit
    for hit in hits:
        if room < 0:
            break  # the rest is for the next answer: nobody reads it now
        lines.append(await _with_context(call, run_id, hit, arguments.context))
        room -= size(lines[-1])
    cursors = [place._replace(skipped=place.skipped + number).cursor for number in range(len(lines))]
    return answer({"run": run_id}, arguments.limit, ("lines", lines), [*cursors, *_next(page, place, len(lines))])


def _next(page: Mapping[str, Any], place: LogPlace, answered: int) -> list[str]:
    """Return the cursor behind the answered lines: further ones of this search, or the next one; none at the end."""
    if place.skipped + answered < len(page["hits"]):
        return [place._replace(skipped=place.skipped + answered).cursor]
    return [] if page["is_complete"] else [LogPlace(page["log"], page["offset"], page["line"]).cursor]


def _place(cursor: str) -> LogPlace:
    if not cursor:
        return LogPlace()
    if (match := _CURSOR.fullmatch(cursor)) is None:
        raise ToolRefused("cursor must be that of an answer before, with the same arguments; leave it out to begin.")
    return LogPlace(*map(int, match.groups()))


async def _with_context(call: Call, run_id: str, hit: Mapping[str, Any], lines: int) -> dict[str, Any]:
    """Return a line with those around it."""
    page = {"rank": hit["rank"], "stream": hit["stream"]} | picked(hit, ("line", "at", "text"))
    if not lines:
        return page
    first = max(0, hit["offset"] - AROUND_BYTES)
    where = {"rank": hit["rank"], "stream": hit["stream"], "offset": first, "limit": 3 * AROUND_BYTES}
    around = await call.api.bytes_of("GET", f"/api/runs/{run_id}/logs", **where)
    before, _, after = around[: hit["offset"] - first], *around[hit["offset"] - first :].partition(b"\n")[1:]
    return page | {
        "before": _texts(before.splitlines()[-lines:], len(before) == AROUND_BYTES),
        "after": _texts(after.splitlines()[:lines]),
    }


def _texts(lines: Sequence[bytes], is_first_cut: bool = False) -> list[str]:
    return [line.decode(errors="replace") for line in lines if not (is_first_cut and len(line) >= AROUND_BYTES)]


TOOLS = (
    Tool(
        "logs",
        "Search the logs of a run's latest attempt: the lines that contain a text, with those around them.",
        LogsWanted,
        logs,
    ),
)
