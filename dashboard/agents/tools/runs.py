"""The tools `runs` and `run`: which runs there are, and what is the matter with one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from dashboard.agents.answers import Own, answer, picked, present
from dashboard.agents.tool import Arguments, Call, Cursor, Run, Tool, cursors_of, offset_of

AT_ONCE = 100
LINE = ("id", "state", "reason", "attention", "step", "total_steps", "last_loss", "eta_s", "created_at", "ended_at")
WRITTEN = ("name", "project", "by", "tags", "message", "finding", "waiting_for")
WHOLE = (
    *LINE[:-2], "attempt", "epoch", "progress", "throughput", "last_lr", "lr", "global_batch_size", "nodes",
    "world_size", "loss_not_finite_since", "created_at", "started_at", "ended_at",
    "stop_requested_at", *WRITTEN, "next_step", "note", "via",
)  # fmt: skip
FINDING = ("kind", "attempt", "node_rank", "evidence", "meaning", "fix", "first_at", "gone_at")


class RunsWanted(Arguments):
    """Which runs."""

    filter: Annotated[str, Field(max_length=500, description="Such as `state:failed project:vision lr>0.001`.")] = ""
    cursor: Cursor = ""


async def runs(call: Call, arguments: RunsWanted) -> str:
    """List the runs that match, newest first."""
    start = offset_of(arguments.cursor)
    page = await call.api.ask("GET", "/api/runs", filter=arguments.filter, limit=AT_ONCE, offset=start)
    lines = [picked(run, (*LINE, *WRITTEN)) for run in page]
    return answer({}, arguments.limit, ("runs", lines), cursors_of(start, lines, len(page) == AT_ONCE))


class RunWanted(Arguments):
    """Which run."""

    run: Run
    cursor: Cursor = ""


async def run(call: Call, arguments: RunWanted) -> str:
    """Say how a run is: the sentence that matters, its figures, what was noticed, and the fix."""
    run_id, start = await call.run_id(arguments.run), offset_of(arguments.cursor)
    view = await call.api.ask("GET", f"/api/runs/{run_id}")
    noticed = [picked(one, FINDING) for one in await call.api.ask("GET", f"/api/runs/{run_id}/findings")]
    findings = sorted(noticed, key=lambda one: "gone_at" in one)[start:]
    head = {
        "sentence": sentence_of(view),
        "run": picked(view, WHOLE),
        "fix": _fix(view),
        "page": Own(call.page_of(run_id)),
    }
    return answer(present(head), arguments.limit, ("findings", findings), cursors_of(start, findings))


def sentence_of(run: Mapping[str, Any]) -> str:
    """The sentence that matters most about a run; empty where its state says all."""
    return next((str(run[name]) for name in ("message", "finding", "waiting_for") if run.get(name)), "")


def _fix(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the corrected launch: its label, and the address of the form that a person opens."""
    fix = run.get("fix") or {}
    return present({"label": fix.get("label"), "link": fix.get("url") and Own(fix["url"])})


TOOLS = (
    Tool("runs", "List runs, newest first: state, step, loss, message.", RunsWanted, runs),
    Tool("run", "One run: the sentence that matters, figures, findings with evidence and fix.", RunWanted, run),
)
