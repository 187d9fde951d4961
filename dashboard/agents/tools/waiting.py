"""The tool `wait`: one call instead of asking again and again."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dashboard.agents.answers import Own, answer, picked, present, rounded
from dashboard.agents.tool import Arguments, Call, Run, Tool
from dashboard.agents.tools.runs import FINDING

LONGEST_S, USUAL_S = 600, 50
"""Many clients give a call a minute."""
NEWS = ("reached", "is_met", "state", "attempt", "reason", "message", "next_step", "waiting_for", "step")


class Awaited(Arguments):
    """What to wait for."""

    run: Run
    until: Annotated[
        str,
        Field(max_length=500, description="`ended`, `finding`, `running`, `step >= 1000`, `val/loss < 0.2`, `or`."),
    ] = "ended"
    timeout_s: Annotated[int, Field(ge=0, le=LONGEST_S)] = USUAL_S
    cursor: Annotated[str, Field(max_length=8000)] = ""


async def wait(call: Call, awaited: Awaited) -> str:
    """Wait until a run has ended, something was noticed or a condition holds; say only what is new since the cursor."""
    run_id = await call.run_id(awaited.run)
    query = {"until": awaited.until, "timeout": awaited.timeout_s, "since": awaited.cursor}
    news = await call.api.ask("GET", f"/api/runs/{run_id}/wait", **query)
    values = [{"series": name, "value": rounded(value)} for name, value in news.get("values", {}).items()]
    findings = [picked(one, FINDING) for one in news.get("findings", [])]
    head = {"run": run_id, "cursor": Own(news["cursor"])} | picked(news, NEWS)
    return answer(head | present({"values": values, "findings": findings}), awaited.limit)


TOOLS = (
    Tool(
        "wait",
        "Wait instead of polling: until a run ended, a finding, or a condition. Pass `cursor` on: only news come back.",
        Awaited,
        wait,
    ),
)
