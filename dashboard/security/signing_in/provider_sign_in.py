"""Signing in at a provider: the way there with a signed cookie, the way back, and a page for what goes wrong."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dashboard.security.header_values import NO_STORE
from dashboard.security.identity.people import People
from dashboard.security.keys.token_files import Credentials
from dashboard.security.plain_pages import ASK_ADMIN
from dashboard.security.proxies import is_https, shown_url
from dashboard.security.signing_in.departures import while_connected
from dashboard.security.signing_in.login import Entrance, local_path
from dashboard.security.signing_in.provider import (
    NotVouched,
    Pending,
    Provider,
    ProviderTrouble,
)
from dashboard.security.signing_in.provider_settings import CALLBACK, ProviderSettings, sign_in_page
from dashboard.security.signing_in.sign_ins import SignIns
from dashboard.security.turns import NoTurn, Turns
from db.people.admission import NotAdmitted
from db.people.invitations import InvitationEnded, NoSuchInvitation
from domain.clock import Clock

T = TypeVar("T")


class ProviderSignIn:
    """GET /login/provider and /login/callback."""

    def __init__(
        self,
        provider: ProviderSettings,
        people: People,
        entrance: Entrance,
        credentials: Credentials,
        sign_ins: SignIns,
        clock: Clock,
    ) -> None:
        self._sign_ins, self._clock = sign_ins, clock
        self._provider, self._people, self._entrance = Provider(provider, clock), people, entrance
        self._credentials = credentials
        self._key = OctKey.import_key(credentials.session_key("sign-in at a provider"))
        self._used: OrderedDict[str, None] = OrderedDict()
        self._turns = Turns(AT_ONCE, MOST_WAITING)

    async def leave(self, request: Request) -> Response:
        """Send the browser to the provider."""
        if request.method == "HEAD":
            return Response(headers=NO_STORE)
        pending = Pending.new()
        try:
            address = await self._ask(request, lambda: self._provider.address(_callback(request), pending))
        except NoTurn as error:
            return _busy(error)
        except ProviderTrouble as error:
            return sign_in_page(502, str(error), "Try again later, or sign in another way.")
        response = RedirectResponse(address, 303, headers=NO_STORE)
        self._set_cookie(response, request, self._signed(pending, request))
        return response

    def _signed(self, pending: Pending, request: Request) -> str:
        target = local_path(request.query_params.get("next", "/"))
        invitation = request.query_params.get("invitation", "")[:200]
        claims = {
            **vars(pending),
            "next": target[:1000],
            "invitation": invitation,
            "exp": int(self._clock.wall() + LASTS_S),
        }
        return jwt.encode({"alg": "HS256"}, claims, self._key)

    async def come_back(self, request: Request) -> Response:
        """Sign the person in with whom the browser returns."""
        if request.method == "HEAD":
            return Response(headers=NO_STORE)
        response = await self._answer(request)
        self._set_cookie(response, request, "")
        return response

    async def _answer(self, request: Request) -> Response:
        begun, query = self._begun(request), request.query_params
        if begun is None or query.get("state") != begun["state"] or not self._is_first(begun["state"]):
            return sign_in_page(400, "This sign-in was not begun in this browser, or has ended.", "Begin again.")
        if (error := query.get("error")) is not None:
            is_denied = error == "access_denied"
            words = "did not let you in" if is_denied else "could not sign you in"
            return sign_in_page(403, f"{self._provider.settings.name} {words}.", "Begin again, or sign in another way.")
        pending, vouched = Pending(begun["state"], begun["nonce"], begun["verifier"]), None
        try:
            code = query.get("code", "")
            vouched = await self._ask(request, lambda: self._provider.person(_callback(request), pending, code))
            user = await run_in_threadpool(self._people.admit, vouched, begun["invitation"] or None)
        except NoTurn as crowd:
            return _busy(crowd)
        except ProviderTrouble as error:
            return sign_in_page(502, str(error), "Try again later, or sign in another way.")
        except (NotVouched, NotAdmitted) as error:
            await self._entrance.refused(vouched.email if vouched is not None else "")
            return sign_in_page(403, str(error), "Sign in as someone else, or ask an admin of this dashboard.")
        except (NoSuchInvitation, InvitationEnded) as error:
            return sign_in_page(410, str(error), ASK_ADMIN)
        self._sign_ins.signed_in(request.scope, user)
        return await self._entrance.signed_in(request.scope, begun["next"], user, "provider")

    async def _ask(self, request: Request, question: Callable[[], T]) -> T:
        """The provider's answer, in turn, while the client waits for it. Raises NoTurn, and what `question` raises."""
        rank = await self._sign_ins.rank_of(request.scope)

        async def answer() -> T:
            async with self._turns.awaited(rank):
                return await run_in_threadpool(question)

        return await while_connected(request.receive, answer)

    def _begun(self, request: Request) -> dict[str, Any] | None:
        """The sign-in that this browser began, from its cookie; None if there is none or it has expired."""
        try:
            claims = jwt.decode(request.cookies.get(self._cookie_name(request), ""), self._key, ["HS256"]).claims
        except (JoseError, ValueError):
            return None
        return claims if claims.get("exp", 0) > self._clock.wall() else None

    def _is_first(self, state: str) -> bool:
        """Whether nobody has come back with this state yet."""
        is_first = state not in self._used
        self._used[state] = None
        if len(self._used) > MOST_USED:
            self._used.popitem(last=False)
        return is_first

    def _set_cookie(self, response: Response, request: Request, value: str) -> None:
        secure, lasts_s = is_https(request.scope), LASTS_S if value else 0
        response.set_cookie(
            self._cookie_name(request), value, max_age=lasts_s, httponly=True, samesite="lax", secure=secure
        )

    def _cookie_name(self, request: Request) -> str:
        return self._credentials.cookie_name_for(is_https(request.scope)) + "-provider"


LASTS_S = 600
"""How long a person may take at the provider."""
AT_ONCE, MOST_WAITING = 8, 64
"""Sign-ins that ask the provider at the same time, each in a thread, and those that wait."""
MOST_USED = 10_000
"""Sign-ins that have come back and are still known as used."""


def _busy(error: NoTurn) -> Response:
    response = sign_in_page(error.status, str(error), "Or sign in another way.")
    response.headers.update(error.headers)
    return response


def _callback(request: Request) -> str:
    return shown_url(request) + CALLBACK
