"""The tools `propose` and `launch`: what a run would take and a link for a person, and a launch within a budget."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from starlette.concurrency import run_in_threadpool

from dashboard.agents import keyed
from dashboard.agents.answers import Own, answer, picked, present
from dashboard.agents.own_api import ToolRefused
from dashboard.agents.tool import Arguments, Call, Key, Tool
from dashboard.planning import proposals
from db.people import access_tokens

MOST_COMMANDS, MOST_WARNINGS = 2, 20
NO_BUDGET = (
    "Launching needs a token with a budget, which this one lacks. Call `propose` and give its link to a person; or ask "
    "for a token: `rankzero token create NAME --scope mcp --budget 20h`."
)
SPEC = (
    "target (recipe, script, folder or git URL), args, name, project, nodes, gpus_per_node, batch_size, lr, epochs, "
    "max_steps, precision, seed, env, entry, …"
)


class ProposedRun(Arguments):
    """A run: its settings, or those that differ from an earlier one."""

    spec: Annotated[dict[str, Any], Field(description=SPEC, default_factory=dict)]
    like: Annotated[str, Field(max_length=200, description="A run with whose code and settings `spec` begins.")] = ""


class LaunchWanted(ProposedRun):
    """A run to launch, once."""

    key: Key


async def propose(call: Call, arguments: ProposedRun) -> str:
    """Say what a run would take, launch nothing, and give the address of the filled form that a person opens.

    Raises ToolRefused where the link would be too long."""
    spec, like = await _spec(call, arguments)
    planned = await call.api.ask("POST", "/api/preview", spec)
    link = proposals.path(
        call.service.credentials, arguments.spec, like, call.api.principal.rights, call.service.clock()
    )
    if len(link) > arguments.limit // 2:
        raise ToolRefused(f"The link would have {len(link)} bytes: shorten `spec`, or raise `limit` to twice that.")
    head = {
        "takes": _takes(spec, planned),
        "expected": planned.get("expected"),
        "warnings": planned["warnings"][:MOST_WARNINGS],
        "commands": [shlex.join(one["argv"]) for one in planned["commands"][:MOST_COMMANDS]],
        "link": Own(call.url + link),
        "next": Own("Nothing was launched. Give the link to a person, who launches it there."),
    }
    return answer(present(head), arguments.limit)


async def launch(call: Call, arguments: LaunchWanted) -> str:
    """Launch a run within the budget of the token; with the same key again, the same run is answered."""
    await require_budget(call)
    spec, like = await _spec(call, arguments)

    async def submit() -> str:
        return str((await call.api.ask("POST", "/api/runs", spec, like=like or None))["id"])

    run_id, is_earlier = await keyed.once(call, arguments.key, ["launch", arguments.spec, like], submit)
    run = await call.api.ask("GET", f"/api/runs/{run_id}")
    head = picked(run, ("id", "name", "state", "waiting_for", "expected_start_at", "nodes", "world_size"))
    said = {"was_launched_before": True} if is_earlier else {}
    return answer({"run": head} | said | {"page": Own(call.page_of(run_id))}, arguments.limit)


async def require_budget(call: Call) -> None:
    """Check that the token of a call has a budget. Raises ToolRefused."""
    token = call.api.principal.access_token
    if token is None or not await run_in_threadpool(access_tokens.has_budget, call.service.store, token):
        raise ToolRefused(NO_BUDGET, 403)


async def _spec(call: Call, arguments: ProposedRun) -> tuple[dict[str, Any], str]:
    """Return the whole spec, and the id of the run that it is like; empty for none. Raises ToolRefused."""
    if not arguments.like:
        if not arguments.spec:
            raise ToolRefused("Say what to run: `spec` with a target, or `like` with an earlier run.")
        return arguments.spec, ""
    run_id = await call.run_id(arguments.like)
    run = await call.api.ask("GET", f"/api/runs/{run_id}")
    return run["spec"] | arguments.spec, run_id


def _takes(spec: Mapping[str, Any], planned: Mapping[str, Any]) -> dict[str, Any]:
    nodes = {"nodes": spec.get("nodes", 1), "devices": planned["world_size"]}
    return nodes | picked(planned, ("lr", "global_batch_size"))


TOOLS = (
    Tool(
        "propose",
        "Dry run: nodes, devices, expected time, commands, warnings, and a link to the filled form for a person.",
        ProposedRun,
        propose,
    ),
    Tool(
        "launch",
        "Launch within this token's budget. A repeated `key` gives the same run. Propose first.",
        LaunchWanted,
        launch,
        changes=True,
    ),
)
