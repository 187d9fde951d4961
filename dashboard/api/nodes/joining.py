"""Join tokens: made, listed and revoked by people, and what to type with them on a new machine."""

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


class Making(BaseModel):
    """What a new join token is for."""

    model_config = ConfigDict(extra="forbid")

    ttl_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Seconds it is good for; a day when it is not said."""
    name: str = ""


@router.get("")
def list_tokens(service: TheService) -> Response:
    """Every join token that was made, the newest first; no secrets."""
    return answer(service.join_tokens())


@router.post("", status_code=201)
def make_token(service: TheService, request: Request, making: Making) -> Response:
    """A new one. Its secret is in this answer and nowhere else."""
    view, secret = service.make_join_token(making.ttl_s, making.name)
    how = how_to_join(secret, service.listening(), _shown_url(request))
    return answer(document(view) | {"token": secret} | document(how), 201, {"Cache-Control": "no-store"})


@router.delete("/{token_id}")
def revoke_token(service: TheService, token_id: str) -> Response:
    """Nobody joins with it any more; nodes that have joined with it stay."""
    return answer(service.revoke_join_token(token_id))


def _shown_url(request: Request) -> str:
    """Where whoever asks has come, by their own words: a proxy that speaks TLS says so."""
    scheme = request.headers.get("x-forwarded-proto", request.url.scheme)
    return f"{scheme}://{request.headers['host']}"
