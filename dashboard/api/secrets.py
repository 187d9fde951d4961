"""Secrets: set, list by name and remove them; no answer has a value."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, SecretStr, field_validator
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer, document
from domain.people.references import Named, Reference
from domain.people.roles import Action

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["secrets"])
Project = Annotated[str | None, Query(max_length=200, description="By default one's own.")]


class SecretValue(BaseModel):
    """The value of a secret, and its project; without one it is one's own."""

    model_config = ConfigDict(extra="forbid")

    value: SecretStr
    project: Annotated[str, Reference(Named.PROJECT, Action.MANAGE)] | None = None

    @field_validator("value", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError("must be text")  # the usual sentence repeats what it is instead
        return value


@router.get("/secrets")
def list_secrets(service: TheService) -> Response:
    """The names of one's own secrets and of those of the projects that one may launch in."""
    return answer(service.secrets.every())


@router.put("/secrets/{name}")
def set_secret(service: TheService, name: str, secret: SecretValue) -> Response:
    """Set or replace a secret; `doubt` says what masking cannot hide well, or that nothing else names the project."""
    of_project = service.people.doubt_about(secret.project, "secret")  # before the secret itself names it
    view = service.secrets.set(name, secret.value.get_secret_value(), secret.project)
    doubts = [doubt for doubt in (view.doubt, of_project) if doubt]
    return answer(document(view) | {"doubt": " ".join(doubts) or None})


@router.delete("/secrets/{name}")
def remove_secret(service: TheService, name: str, project: Project = None) -> Response:
    """Remove a secret; live attempts keep it until they end."""
    return answer(service.secrets.remove(name, project))
