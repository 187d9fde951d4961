"""The login page, and the end of a session."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dashboard.security.plain_pages import login_page
from dashboard.security.sign_ins import LONGEST_DELAY_S, Sessions, SignIns, TooManyTries
from dashboard.security.token_files import COOKIE_LIFETIME_S, Credentials

LATER = "Too many tries with a wrong token from your address: wait a minute, then try again."
"""The answer to a try that is not judged."""


class Login:
    """GET and POST /login, POST /logout."""

    def __init__(
        self, credentials: Credentials, sessions: Sessions, sign_ins: SignIns, now: Callable[[], float]
    ) -> None:
        self._credentials, self._sessions, self._sign_ins = credentials, sessions, sign_ins
        self._now = now

    async def show(self, request: Request) -> Response:
        """The login form."""
        content = login_page("/", signed_out="signed-out" in request.query_params)
        return HTMLResponse(content, headers={"Cache-Control": "no-store"})

    async def sign_in(self, request: Request) -> Response:
        """Exchange a token for a session."""
        if not _is_from_here(request):
            return HTMLResponse(login_page("/"), 403)
        form = dict(parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True))
        target = local_path(form.get("next", "/"))
        token = form.get("token", "").strip().encode(errors="replace")
        try:
            is_right = await self._sign_ins.is_right(token, request.scope)
        except TooManyTries:
            headers = {"Cache-Control": "no-store", "Retry-After": f"{LONGEST_DELAY_S:.0f}"}
            return HTMLResponse(login_page(target, LATER), 429, headers=headers)
        if not is_right:
            page = login_page(target, "Incorrect token.")
            return HTMLResponse(page, 401, headers={"Cache-Control": "no-store"})
        return signed_in(self._credentials, target, self._now(), secure=request.url.scheme == "https")

    async def sign_out(self, request: Request) -> Response:
        """End the session of the cookie, in this browser and wherever else it was copied to."""
        name = self._credentials.cookie_name
        if (cookie := request.cookies.get(name)) is not None:
            self._sessions.end(cookie, self._now())
        response = Response(status_code=204, headers={"Cache-Control": "no-store"})
        response.delete_cookie(name, httponly=True, samesite="lax", secure=request.url.scheme == "https")
        return response


def signed_in(credentials: Credentials, target: str, now: float, secure: bool) -> Response:
    """A redirect to a local path that sets the session cookie."""
    response = RedirectResponse(target, status_code=303, headers={"Cache-Control": "no-store"})
    response.set_cookie(
        credentials.cookie_name,
        credentials.cookie(now),
        max_age=COOKIE_LIFETIME_S,
        httponly=True,
        samesite="lax",
        secure=secure,
    )
    return response


def local_path(path: str) -> str:
    """The path, or `/` when a browser might take it for another site's address."""
    before_query = path.partition("?")[0]
    if not path.startswith("/") or path.startswith("//") or "\\" in path or "%5c" in before_query.lower():
        return "/"
    return "/" if any(ord(c) < 33 or ord(c) == 127 for c in path) else path


def _is_from_here(request: Request) -> bool:
    """Whether the form was sent by this site: another site must not sign somebody in."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    return site in ("same-origin", "none") and (origin is None or urlsplit(origin).netloc == host)
