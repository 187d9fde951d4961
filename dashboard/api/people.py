"""People: accounts, roles, invitations, private projects, and one's own account."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.cluster.joining import url_for_links
from dashboard.json_responses import answer, document
from dashboard.security.header_values import NO_STORE
from dashboard.security.proxies import shown_url
from db import acting
from db.people import invitations
from domain.people.accounts import checked_role
from domain.people.references import Named, Reference
from domain.people.removal import parse
from domain.people.roles import Action, Role

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["people"])


class RoleChange(BaseModel):
    """A role that is given, or taken away."""

    model_config = ConfigDict(extra="forbid")

    role: Annotated[str, Field(max_length=20)] | None
    """viewer, member, admin; none takes it away."""
    project: Annotated[str, Field(max_length=200), Reference(Named.PROJECT, Action.MANAGE)] | None = None
    """The role counts in this project alone; by default in all that are not private."""


class InvitationRequest(BaseModel):
    """The address, role and lifetime of an invitation."""

    model_config = ConfigDict(extra="forbid")

    email: Annotated[str, Field(max_length=254)]
    role: Annotated[str, Field(max_length=20)] = Role.VIEWER.value
    project: Annotated[str, Field(max_length=200), Reference(Named.PROJECT, Action.MANAGE)] | None = None
    """The role counts in this project alone; by default in all that are not private."""
    days: Annotated[float, Field(gt=0, allow_inf_nan=False)] = invitations.DEFAULT_DAYS
    """Days until the link expires."""


OneProject = Annotated[str | None, Query(max_length=200, description="By default in all that are not private.")]
LiveRuns = Annotated[
    str, Query(max_length=60, description="What becomes of live runs: keep (continue), stop, or give:NAME.")
]


@router.get("/users")
def list_users(service: TheService) -> Response:
    """All people with an account, by name; projects that are hidden from you are left out."""
    return answer(service.people.users())


@router.get("/users/{name}")
def show_user(service: TheService, name: str) -> Response:
    """One person."""
    return answer(service.people.user(name))


@router.patch("/users/{name}")
def change_role(service: TheService, name: str, change: RoleChange) -> Response:
    """Give a person a role, or take it away; `doubt` is a sentence where nothing else names the project."""
    doubt = service.people.doubt_about(change.project, "role" if checked_role(change.role) else None)
    return answer(document(service.people.set_role(name, change.role, change.project)) | {"doubt": doubt})


@router.get("/users/{name}/role-change")
def loss_by_role(
    service: TheService, name: str, role: Annotated[str, Query(max_length=20)], project: OneProject = None
) -> Response:
    """Return what the person would lose by this role; `sentence` is empty where it is nothing."""
    return answer(service.people.loss_by_role(name, role, project))


@router.delete("/users/{name}")
def remove_user(service: TheService, name: str, runs: LiveRuns = "keep") -> Response:
    """Remove a person: their sessions and tokens end, their runs stay."""
    return answer({"name": name} | service.remove_person(name, parse(runs)))


@router.get("/users/{name}/removal")
def loss_by_removal(service: TheService, name: str) -> Response:
    """Return what would end with the account, and how many live runs (`runs`) the person has."""
    return answer(service.people.loss_by_removal(name))


@router.post("/invitations", status_code=201)
def invite(service: TheService, request: Request, invitation: InvitationRequest) -> Response:
    """Invite a person; existing users get a link to a new password. Only this response contains the link.

    `doubt` is a sentence where nothing else names the project."""
    doubt = service.people.doubt_about(invitation.project)
    view, secret = service.people.invite(invitation.email, invitation.role, invitation.project, invitation.days)
    url = url_for_links(service.listening(), shown_url(request), service.settings.public_url)
    link = f"{url}/invite/{secret}"
    content = {"link": link, "expires_at": view.expires_at, "id": view.id, "user": view.user, "doubt": doubt}
    return answer(content, 201, NO_STORE)


@router.get("/invitations")
def list_invitations(service: TheService) -> Response:
    """The invitations to what you may give roles in, newest first."""
    now = service.clock()
    return answer([{"state": view.state(now), **vars(view)} for view in service.people.invitations()])


@router.delete("/invitations/{invitation_id}")
def revoke_invitation(service: TheService, invitation_id: str) -> Response:
    """End an invitation that is not yet accepted."""
    return answer(service.people.revoke_invitation(invitation_id))


@router.get("/projects")
def list_projects(service: TheService) -> Response:
    """The projects that you see, with your role in each."""
    return answer(service.people.projects())


@router.get("/projects/{project:path}/privacy")
def loss_by_privacy(service: TheService, project: str) -> Response:
    """Return the loss of sight of runs if the project is made private; `sentence` is empty where nobody has one."""
    return answer(service.people.loss_by_privacy(project))


@router.put("/projects/{project:path}/privacy")
def set_privacy(service: TheService, project: str, is_private: Annotated[bool, Body(embed=True)]) -> Response:
    """Make a project private, visible only to its members and the owner, or open it again."""
    return answer(service.people.set_privacy(project, is_private))


@router.get("/projects/{project:path}/members")
def list_members(service: TheService, project: str) -> Response:
    """All people with a role in a project."""
    return answer(service.people.members(project))


# One's own account.


@router.get("/me")
def me(service: TheService) -> Response:
    """Your name, your role in all projects that are not private, and your roles in single projects."""
    rights, view = acting.rights(), service.people.me()
    return answer(document(view) | {"via": rights.via, "scope": rights.scope, "only_project": rights.only_project})


class AddressChange(BaseModel):
    """Another e-mail address."""

    model_config = ConfigDict(extra="forbid")

    email: Annotated[str, Field(max_length=254)]
    old: Annotated[str, Field(max_length=2000)] | None = None
    """The current password, unless the person has none or signed in with the server's token."""


@router.patch("/me")
def set_email(service: TheService, change: AddressChange) -> Response:
    """Set the address with which you sign in."""
    return answer(service.people.set_email(change.email, change.old))


class PasswordChange(BaseModel):
    """A new password."""

    model_config = ConfigDict(extra="forbid")

    password: Annotated[str, Field(max_length=2000)]
    old: Annotated[str, Field(max_length=2000)] | None = None
    """Not needed for the first one, nor after signing in with the server's token."""


@router.post("/me/password", status_code=204)
def set_password(service: TheService, change: PasswordChange) -> Response:
    """Set your password; your other sessions end."""
    service.people.set_password(change.password, change.old)
    return Response(status_code=204)


@router.get("/me/sessions")
def list_sessions(service: TheService) -> Response:
    """Your browsers that are signed in, newest first."""
    return answer(service.people.sessions())


@router.delete("/me/sessions", status_code=204)
def sign_out_everywhere(service: TheService, others: bool = False) -> Response:
    """Sign out in all browsers; with `others`, in all but this one."""
    if others:
        service.people.sign_out_others()
    else:
        service.people.sign_out_everywhere()
    return Response(status_code=204)


@router.delete("/me/sessions/{session_id}", status_code=204)
def end_session(service: TheService, session_id: str) -> Response:
    """Sign out in one browser."""
    service.people.end_session(session_id)
    return Response(status_code=204)
