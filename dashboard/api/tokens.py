"""Access tokens of people, who one is, and command lines that ask to be let in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer, document
from dashboard.security.header_values import NO_STORE
from dashboard.security.signing_in.sign_ins import sender_of
from db import acting
from db.people.login_requests import shown
from domain.people.references import Named, Reference
from domain.people.roles import Scope
from domain.people.tokens import LIFETIME_S, Bounds, TokenWanted
from domain.requests.errors import InvalidRequest

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["people"])
POLL_S = 2.0
Seconds = Annotated[float, Field(gt=0, le=1e15, allow_inf_nan=False)]
Lifetime = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class TokenRequest(BaseModel):
    """The name, bounds and lifetime of a new token."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(max_length=200)]
    scope: Scope
    project: Annotated[str, Field(max_length=200), Reference(Named.PROJECT)] | None = None
    """The only project it is valid for."""
    lasts_s: Lifetime | None = LIFETIME_S
    """Lifetime in seconds; null: no expiry."""

    budget_s: Seconds | None = None
    """Seconds of one device that its runs may take in all; null: no budget."""
    most_devices: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Devices that its runs may have at a time."""
    longest_s: Seconds | None = None
    """Seconds that each of its runs may train."""

    def wanted(self) -> TokenWanted:
        """The requested token. Raises InvalidRequest for bounds without a budget."""
        return TokenWanted(self.name.strip(), self.scope, self.project, self.lasts_s, self._bounds())

    def _bounds(self) -> Bounds | None:
        if self.budget_s is not None:
            return Bounds(self.budget_s, self.most_devices, self.longest_s)
        for name in ("most_devices", "longest_s"):
            if getattr(self, name) is not None:
                raise InvalidRequest(name, f"{name}: bounds what a token with a budget launches; give budget_s, too.")
        return None


class LoginQuestion(BaseModel):
    """The code and secret of a waiting request."""

    model_config = ConfigDict(extra="forbid")

    code: Annotated[str, Field(max_length=40)]
    secret: Annotated[str, Field(max_length=200)]


@router.get("/whoami")
def whoami(service: TheService) -> Response:
    """The sender of this request: name, role in all projects, those in projects that the token sees, and its bounds."""
    rights = acting.rights()
    person = service.identities.rights(rights.by or "") or rights
    bounds = service.access_tokens.bounds_of(rights) if rights.via else None
    projects = {name: role for name, role in person.in_projects.items() if rights.only_project in (None, name)}
    return answer({"name": rights.by, "role": person.everywhere, "projects": projects, "token": bounds})


@router.get("/tokens")
def list_tokens(service: TheService, everybody: Annotated[bool, Query(alias="all")] = False) -> Response:
    """Your access tokens, newest first, without the secrets; with `all` everybody's, for admins."""
    return answer(service.access_tokens.all() if everybody else service.access_tokens.own())


@router.post("/tokens", status_code=201)
def make_token(service: TheService, token_request: TokenRequest) -> Response:
    """Make an access token. Only this response contains its secret.

    `doubt` is a sentence where nothing else names the project."""
    view, secret = service.access_tokens.make(token_request.wanted())
    doubt = service.people.doubt_about(token_request.project, "token")
    return answer(document(view) | {"token": secret, "doubt": doubt}, 201, NO_STORE)


@router.delete("/tokens/{name}")
def revoke_token(service: TheService, name: str, user: str | None = None) -> Response:
    """Revoke one of your access tokens at once; admins also one of another person."""
    service.access_tokens.revoke(name, user)
    return answer({"name": name})


@router.post("/login-requests", status_code=201)
def ask_to_be_let_in(service: TheService, request: Request, token_request: TokenRequest) -> Response:
    """Ask for a token that a signed-in person allows at `/device`; the name is the machine's."""
    pending, secret = service.device_logins.ask(token_request.wanted(), sender_of(request.scope))
    content = {
        "code": shown(pending.code),
        "secret": secret,
        "path": f"/device?code={shown(pending.code)}",
        "expires_at": pending.expires_at,
        "poll_s": POLL_S,
    }
    return answer(content, 201, NO_STORE)


@router.post("/login-requests/outcome")
def outcome(service: TheService, question: LoginQuestion) -> Response:
    """The state of such a request; once it is allowed, its secret is the token, with `doubt` as if it had been made."""
    state, token = service.device_logins.outcome(question.code, question.secret)
    if token is None:
        return answer({"state": state, "token": None})
    doubt = service.people.doubt_about(token.project, "token")
    return answer({"state": state, "token": document(token) | {"doubt": doubt}})
