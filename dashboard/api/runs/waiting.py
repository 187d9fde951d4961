"""Wait for a run in one request, instead of asking again and again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from dashboard.api.context import ThePrincipal, TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from dashboard.security.signing_in.departures import while_connected
from dashboard.waiting import waits
from domain.waiting import ENDED, EXAMPLE, LONGEST_UNTIL, LONGEST_WAIT_S

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["runs"])
LONGEST_CURSOR = 8000
USUAL_WAIT_S = 50.0
"""Most proxies end a request that is silent for a minute."""


@router.get("/runs/{run_id}/wait")
async def wait(
    service: TheService,
    request: Request,
    principal: ThePrincipal,
    run_id: str,
    until: Annotated[str, Query(max_length=LONGEST_UNTIL, description=f"Such as {EXAMPLE}.")] = ENDED,
    timeout: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds.")] = USUAL_WAIT_S,
    since: Annotated[str, Query(max_length=LONGEST_CURSOR, description="The cursor of an earlier answer.")] = "",
) -> Response:
    """Wait until the run has ended, a new finding has come, or the condition holds: `reached` says which, or timeout.

    Only what is new since the cursor is in the answer: the state, the step with the last values of the main series,
    findings. `is_met` says whether the condition holds."""
    try:
        news = await while_connected(
            request.receive, lambda: waits.wait(service, principal.access_token, run_id, until, timeout, since)
        )
    except ClientDisconnect:
        return Response(status_code=204)  # nobody reads it
    return answer(news)
