"""The page of an invitation's link, where an invited person makes an account, or sets a new password."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dashboard.security.header_values import NO_STORE
from dashboard.security.identity.people import People
from dashboard.security.limits import TryLater
from dashboard.security.plain_pages import ASK_ADMIN, invitation_page, password_page, sentence_page
from dashboard.security.signing_in.departures import while_connected
from dashboard.security.signing_in.login import Entrance, form_of, is_from_here
from dashboard.security.signing_in.sign_ins import SignIns
from dashboard.security.turns import Rank
from db import acting
from db.people.invitations import InvitationEnded, NoSuchInvitation
from domain.people.accounts import InvitationView
from domain.people.roles import in_words
from domain.requests.errors import InvalidRequest


class Welcome:
    """GET and POST /invite/SECRET."""

    def __init__(self, people: People, entrance: Entrance, sign_ins: SignIns, provider: str | None = None) -> None:
        """`provider` is the name of the provider on its button."""
        self._people, self._entrance, self._sign_ins, self._provider = people, entrance, sign_ins, provider

    def install(self, app: FastAPI) -> None:
        """Add the routes."""
        app.add_route(PATH, self.show, methods=["GET", "HEAD"], include_in_schema=False)
        app.add_route(PATH, self.accept, methods=["POST"], include_in_schema=False)

    async def show(self, request: Request) -> Response:
        """The form, or what became of the invitation."""
        secret = request.path_params["secret"]
        try:
            invitation = await run_in_threadpool(self._people.invited, secret)
        except (NoSuchInvitation, InvitationEnded) as error:
            return refused(error)
        name = await run_in_threadpool(self._people.free_name, invitation.email)
        return await self._form(invitation, name, secret)

    async def accept(self, request: Request) -> Response:
        """Make the account, or set its password, and sign it in."""
        secret = request.path_params["secret"]
        if not is_from_here(request, self._entrance.origins):
            page = sentence_page("Invitation", "This form was sent by another site.", "Open the link again.")
            return _page(page, 403)
        form = await form_of(request)

        async def judge(rank: Rank) -> str | None:
            return await run_in_threadpool(self._accepted, secret, form, rank)

        try:
            user = await while_connected(request.receive, lambda: self._sign_ins.in_turn(judge, request.scope))
        except InvitationEnded as error:
            return refused(error)
        except (InvalidRequest, TryLater) as error:
            return await self._form_again(secret, form.get("name", ""), error)
        if user is None:
            return await self.show(request)
        return await self._entrance.signed_in(request.scope, "/", user, "link")

    def _accepted(self, secret: str, form: dict[str, str], rank: Rank) -> str | None:
        """The name of the person who accepts the invitation; None where there is no such invitation."""
        try:
            if self._people.invited(secret).user is None:
                return self._people.accept(secret, form.get("name", ""), form.get("password", ""), rank)
            password = form.get("password", "")
            return self._people.accept_password(secret, password, rank, revokes_tokens="revoke" in form)
        except NoSuchInvitation:
            return None

    async def _form_again(self, secret: str, name: str, error: InvalidRequest | TryLater) -> Response:
        try:
            invitation = await run_in_threadpool(self._people.invited, secret)
        except (NoSuchInvitation, InvitationEnded) as ended:
            return refused(ended)
        if isinstance(error, InvalidRequest):
            return await self._form(invitation, name, secret, str(error), 422)
        response = await self._form(invitation, name, secret, str(error), error.status)
        response.headers.update(error.headers)
        return response

    async def _form(
        self, invitation: InvitationView, name: str, secret: str, problem: str = "", status: int = 200
    ) -> Response:
        if invitation.user is not None:
            tokens = await run_in_threadpool(self._people.tokens_of, invitation)
            return _page(password_page(invitation.user, tokens, problem, acting.rights().by), status)
        to = f"as {in_words(invitation.role, invitation.project)}"
        content = invitation_page(invitation.email, name, to, problem, self._provider, secret, acting.rights().by)
        return _page(content, status)


PATH = "/invite/{secret}"


def refused(error: Exception) -> Response:
    """The page of an invitation that nobody can accept any more."""
    is_unknown = isinstance(error, NoSuchInvitation)
    page = sentence_page("Invitation", str(error), ASK_ADMIN, acting.rights().by)
    return _page(page, 404 if is_unknown else 410)


def _page(content: str, status: int) -> Response:
    return HTMLResponse(content, status, headers=NO_STORE)
