"""The tool `act`: stop, resume or tag a run."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from dashboard.agents import keyed
from dashboard.agents.answers import Own, answer, picked
from dashboard.agents.own_api import ToolRefused
from dashboard.agents.tool import Arguments, Call, Key, Run, Tool

Tags = Annotated[tuple[Annotated[str, Field(max_length=100)], ...], Field(max_length=50)]


class ActWanted(Arguments):
    """What to do to which run."""

    run: Run
    action: Literal["stop", "resume", "tag"]
    key: Key
    reason: Annotated[str, Field(max_length=500, description="Of a stop, for its owner.")] = ""
    checkpoint: Annotated[str, Field(max_length=1000, description="To resume from; else the latest.")] = ""
    add_tags: Tags = ()
    remove_tags: Tags = ()


async def act(call: Call, arguments: ActWanted) -> str:
    """Do something to a run, once for each key."""
    run_id = await call.run_id(arguments.run)
    method, path, body = _request(run_id, arguments)

    async def ask() -> str:
        await call.api.ask(method, path, body)
        return run_id

    content = [arguments.action, run_id, body]
    _, is_earlier = await keyed.once(call, arguments.key, content, ask)
    run = await call.api.ask("GET", f"/api/runs/{run_id}")
    shown = picked(run, ("id", "name", "state", "stop_requested_at", "attempt", "message", "waiting_for", "tags"))
    said = {"was_asked_before": True} if is_earlier else {}
    return answer({"run": shown} | said | {"page": Own(call.page_of(run_id))}, arguments.limit)


def _request(run_id: str, arguments: ActWanted) -> tuple[str, str, dict[str, Any]]:
    path = f"/api/runs/{run_id}"
    if arguments.action == "stop":
        return "POST", f"{path}/stop", {"reason": arguments.reason or None}
    if arguments.action == "resume":
        return "POST", f"{path}/resume", {"checkpoint": arguments.checkpoint or None}
    if not arguments.add_tags and not arguments.remove_tags:
        raise ToolRefused("Name the tags: `add_tags` or `remove_tags`.")
    return "PATCH", path, {"add_tags": arguments.add_tags, "remove_tags": arguments.remove_tags}


TOOLS = (
    Tool(
        "act",
        "Stop, resume or tag a run that this token launched; others only with a token that may act on them.",
        ActWanted,
        act,
        changes=True,
        may_end=True,
    ),
)
