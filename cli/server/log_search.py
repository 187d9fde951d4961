"""Searches in the logs of runs, answer by answer, so that each can be told and the search be interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cli.server.client import ServerClient
from cli.server.options import run_path


def matching_runs(server: ServerClient, text: str, search: str | None) -> Iterator[dict[str, Any]]:
    """Yield each answer about the runs that match a search, newest first. Raises CommandFailed."""
    after = None
    while True:
        answer = server.get("/api/logs/search", q=text, filter=search, after=after)
        yield answer
        after = answer["after"]
        if after is None:
            return


def merged_runs(runs: list[dict[str, Any]], more: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs of two successive answers; one that the first left in the middle comes again in the second."""
    if runs and more and runs[-1]["id"] == more[0]["id"]:
        whole = runs[-1] | {"lines": runs[-1]["lines"] + more[0]["lines"]}
        return [*runs[:-1], whole, *more[1:]]
    return [*runs, *more]


def matching_lines(server: ServerClient, run: str, text: str, attempt: int | None) -> Iterator[dict[str, Any]]:
    """Yield the matching lines of every rank and stream of an attempt, by default the latest. Raises CommandFailed."""
    place: dict[str, Any] = {"log": 0, "offset": 0, "line": 1}
    last: tuple[Any, ...] = ()
    while True:
        answer = server.get(run_path(run, "logs/merged/search"), q=text, attempt=attempt, **place)
        for hit in answer["hits"]:
            own = (hit["rank"], hit["stream"], hit["line"])
            if own != last:  # an answer begins with the line in which the one before ended
                yield hit
            last = own
        after = {name: answer[name] for name in place}
        if answer["is_complete"] or after == place:
            return
        place = after
