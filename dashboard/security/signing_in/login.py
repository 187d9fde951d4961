"""The sign-in page, and the end of a session."""

from __future__ import annotations

from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Scope

from dashboard.security.header_values import NO_STORE
from dashboard.security.identity.sessions import CURRENT, UNREADABLE, Sessions
from dashboard.security.keys.token_files import Credentials
from dashboard.security.limits import TryLater
from dashboard.security.plain_pages import ENDED, SIGNED_OUT, SignInWays, login_page
from dashboard.security.proxies import Origins, is_https
from dashboard.security.signing_in.departures import while_connected
from dashboard.security.signing_in.sign_ins import SignIns, sender_of
from dashboard.security.turns import Rank, Turns
from db.engine import Store
from db.people import accounts, passwords
from domain.people.accounts import EMAIL, NAME, normalised_email
from domain.people.browsers import browser_name
from domain.people.rights import OWNER


class LoginPage:
    """GET and POST /login, POST /logout."""

    def __init__(
        self, store: Store, entrance: Entrance, sign_ins: SignIns, turns: Turns, provider: str | None = None
    ) -> None:
        """`turns` are those at hashing; `provider` is the name of the provider on its button."""
        self._store, self._entrance, self._sign_ins, self._provider = store, entrance, sign_ins, provider
        self._turns = turns
        self._judging = CapacityLimiter(passwords.AT_ONCE)

    async def show(self, request: Request) -> Response:
        """The sign-in page."""
        target = local_path(request.query_params.get("next", "/"))
        news = SIGNED_OUT if "signed-out" in request.query_params else ENDED if "ended" in request.query_params else ""
        return await self.page(200, target, news=news)

    async def page(
        self,
        status: int,
        target: str,
        problem: str = "",
        news: str = "",
        person: str = "",
        is_by_token: bool = False,
    ) -> Response:
        """The sign-in page, with what is wrong or new, and the name that was typed."""
        ways = SignInWays(await run_in_threadpool(self._has_passwords), self._provider)
        content = login_page(target, problem, news, person, ways, is_by_token)
        return HTMLResponse(content, status, headers=NO_STORE)

    def _has_passwords(self) -> bool:
        try:
            return accounts.has_passwords(self._store)
        except UNREADABLE:  # the token's field is always there
            return False

    async def sign_in(self, request: Request) -> Response:
        """Exchange a token, or a name or address with its password, for a session."""
        if not is_from_here(request, self._entrance.origins):
            return await self.page(403, "/")
        form = await form_of(request)
        target, person = local_path(form.get("next", "/")), form.get("person", "")
        is_by_token = "person" not in form
        try:
            user = await while_connected(request.receive, lambda: self._user(form, request.scope))
        except TryLater as error:
            response = await self.page(error.status, target, str(error), person=person, is_by_token=is_by_token)
            response.headers.update(error.headers)
            return response
        if user is None:
            await self._entrance.refused(person)
            problem = "Incorrect token." if is_by_token else "Incorrect name or password."
            problem += await self._slowed(request.scope, person)
            return await self.page(401, target, problem, person=person, is_by_token=is_by_token)
        return await self._entrance.signed_in(request.scope, target, user, "token" if is_by_token else "password")

    async def _slowed(self, scope: Scope, person: str) -> str:
        """A sentence where the next try waits so long that it would seem lost."""
        delay_s = await self._sign_ins.next_delay_s(scope, account_of(person))
        return f" The next try is answered after {delay_s:.0f} s." if delay_s >= 1 else ""

    async def _user(self, form: dict[str, str], scope: Scope) -> str | None:
        if "person" not in form:
            token = form.get("token", "").strip().encode(errors="replace")
            return OWNER if await self._sign_ins.is_right(token, scope) else None
        account, password = account_of(form["person"]), form.get("password", "")

        async def judge(rank: Rank) -> str | None:
            async with self._turns.awaited(rank):
                return await to_thread.run_sync(self._judge, account, password, limiter=self._judging)

        return await self._sign_ins.in_turn(judge, scope, account)

    def _judge(self, account: str, password: str) -> str | None:
        """The name of the person whose password this is; takes as long for names that nobody has."""
        entry = accounts.entry(self._store, account)
        password_hash = entry.password_hash if entry else None
        if not passwords.is_right(password, password_hash) or entry is None or password_hash is None:
            return None
        if passwords.is_outdated(password_hash):
            accounts.rehash(self._store, entry.name, password_hash, passwords.hashed(password))
        return entry.name

    async def sign_out(self, request: Request) -> Response:
        """End the session of the cookie, in this browser and wherever else it was copied to."""
        return await self._entrance.signed_out(request.scope)


LONGEST_ACCOUNT = 320


def account_of(person: str) -> str:
    """The name or address that was typed, in the form in which tries for one account are counted."""
    return normalised_email(person)[:LONGEST_ACCOUNT]


class Entrance:
    """Begins sessions and ends them, with their cookies."""

    def __init__(self, credentials: Credentials, sessions: Sessions, origins: Origins) -> None:
        """`origins` say which forms are the dashboard's own."""
        self._credentials, self._sessions, self.origins = credentials, sessions, origins

    async def signed_in(self, scope: Scope, target: str, user: str, way: str) -> Response:
        """A redirect to a local path that sets the cookie of a new session; another person's session here ends."""
        response = RedirectResponse(target, status_code=303, headers=NO_STORE)
        earlier = Request(scope).cookies.get(self._credentials.cookie_name_for(is_https(scope)))
        before = await self._sessions.find(earlier) if earlier else None
        if before is not None and before.user != user:
            await run_in_threadpool(self._sessions.end, before.secret_hash)
        browser = browser_name(Request(scope).headers.get("user-agent", ""))
        secret = await run_in_threadpool(self._sessions.begin, user, way, sender_of(scope), browser)
        response.set_cookie(
            self._credentials.cookie_name_for(is_https(scope)),
            secret,
            max_age=int(self._sessions.lifetime_s),
            httponly=True,
            samesite="lax",
            secure=is_https(scope),
        )
        return response

    async def refused(self, name: str = "") -> None:
        """Write down that somebody was not let in, by the name or address that they gave.

        What can be neither is left out: it may be a token, or a password in the wrong field."""
        account = normalised_email(name)
        is_possible = NAME.fullmatch(account) or EMAIL.fullmatch(account)
        await run_in_threadpool(self._sessions.write_down_refusal, account if is_possible else "")

    async def signed_out(self, scope: Scope) -> Response:
        """End the session that sends this request, and remove its cookie."""
        session = CURRENT.get()
        if session is not None:
            await run_in_threadpool(self._sessions.end, session.secret_hash)
        response = Response(status_code=204, headers=NO_STORE)
        name = self._credentials.cookie_name_for(is_https(scope))
        response.delete_cookie(name, httponly=True, samesite="lax", secure=is_https(scope))
        return response


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a posted form."""
    return dict(parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True))


def local_path(path: str) -> str:
    """The path, or `/` when a browser might take it for another site's address."""
    before_query = path.partition("?")[0]
    if not path.startswith("/") or path.startswith("//") or "\\" in path or "%5c" in before_query.lower():
        return "/"
    return "/" if any(ord(c) < 33 or ord(c) == 127 for c in path) else path


def is_from_here(request: Request, origins: Origins) -> bool:
    """Whether the form was sent by this site: another site must not sign somebody in."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    return site in ("same-origin", "none") and (origin is None or origins.is_own(origin, request))
