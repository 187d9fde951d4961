"""The login page, and the end of a session."""

from __future__ import annotations

import logging
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dashboard.security.plain_pages import login_page
from dashboard.security.sessions import Sessions
from dashboard.security.token_files import COOKIE_LIFETIME_S, Credentials

log = logging.getLogger("rankzero")
LOG_EVERY_S = 60.0


class Login:
    """GET and POST /login, POST /logout."""

    def __init__(self, credentials: Credentials, sessions: Sessions, now: Callable[[], float]) -> None:
        self._credentials = credentials
        self._sessions = sessions
        self._now = now
        self._failures = Failures()

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
        if not self._credentials.is_user(form.get("token", "").strip().encode(errors="replace")):
            self._failures.count(self._now())
            return HTMLResponse(login_page(target, wrong=True), 401, headers={"Cache-Control": "no-store"})
        return signed_in(self._credentials, target, self._now(), secure=request.url.scheme == "https")

    async def sign_out(self, request: Request) -> Response:
        """End the session of the cookie, in this browser and wherever else it was copied to."""
        name = self._credentials.cookie_name
        if (cookie := request.cookies.get(name)) is not None:
            self._sessions.end(cookie, self._now())
        response = Response(status_code=204, headers={"Cache-Control": "no-store"})
        response.delete_cookie(name, httponly=True, samesite="lax", secure=request.url.scheme == "https")
        return response


class Failures:
    """Counts wrong tokens and logs them at most once a minute."""

    def __init__(self, message: str = "%d sign-ins with a wrong token") -> None:
        self._message = message
        self._count = 0
        self._logged_at = float("-inf")

    def count(self, now: float) -> None:
        """Count one wrong token."""
        self._count += 1
        if now - self._logged_at >= LOG_EVERY_S:
            log.warning(self._message, self._count)
            self._count, self._logged_at = 0, now


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
