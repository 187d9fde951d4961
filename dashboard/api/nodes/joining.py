"""Join tokens: make, list and revoke them, and show the commands that use them on a new machine."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.cluster.joining import how_to_join
from dashboard.json_responses import answer, document

router = APIRouter(route_class=JsonRoute, prefix="/api/join-tokens", tags=["nodes"])


class JoinTokenRequest(BaseModel):
    """The lifetime and name of a new join token."""

    model_config = ConfigDict(extra="forbid")

    ttl_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Lifetime in seconds; a day by default."""
    name: str = ""


@router.get("")
def list_tokens(service: TheService) -> Response:
    """Every join token, newest first, without the secrets."""
    return answer(service.join_tokens())


@router.post("", status_code=201)
def make_token(service: TheService, request: Request, token_request: JoinTokenRequest) -> Response:
    """Make a join token. Its secret is in this response and nowhere else."""
    view, secret = service.make_join_token(token_request.ttl_s, token_request.name)
    join_commands = how_to_join(secret, service.listening(), shown_url(request))
    return answer(document(view) | {"token": secret} | document(join_commands), 201, {"Cache-Control": "no-store"})


@router.delete("/{token_id}")
def revoke_token(service: TheService, token_id: str) -> Response:
    """Revoke a join token; nodes that have joined with it stay."""
    return answer(service.revoke_join_token(token_id))


def shown_url(request: Request) -> str:
    """The address that the client used to reach the dashboard; a proxy that speaks TLS names its scheme."""
    scheme = request.headers.get("x-forwarded-proto", request.url.scheme)
    return f"{scheme}://{request.headers['host']}"
