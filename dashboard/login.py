"""The page where people without a session paste their token."""

from __future__ import annotations

import hashlib
import logging
from base64 import b64encode
from collections.abc import Callable
from html import escape
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from dashboard.access import COOKIE_LIFETIME_S, Credentials

log = logging.getLogger("rankzero")
TOLD_EVERY_S = 60.0

_STYLE = """
:root{color-scheme:light dark;--text:#1b1f24;--soft:#5b6470;--page:#f6f7f9;--card:#fff;--line:#d9dde3;--accent:#3b5bdb}
@media(prefers-color-scheme:dark){:root{--text:#e7eaee;--soft:#9aa4b1;--page:#12151a;--card:#1a1e25;--line:#2d343f;
--accent:#7c93f5}}
body{margin:0;min-height:100vh;display:grid;place-items:center;background:var(--page);color:var(--text);
font:16px/1.5 system-ui,sans-serif}
form{width:min(26rem,calc(100vw - 4rem));background:var(--card);border:1px solid var(--line);border-radius:12px;
padding:2rem}
h1{font-size:1.25rem;margin:0 0 .5rem}p{margin:0 0 1.25rem;color:var(--soft);font-size:.925rem}
label{display:block;font-size:.875rem;margin-bottom:.25rem}
input{box-sizing:border-box;width:100%;font:inherit;padding:.6rem .75rem;border:1px solid var(--line);border-radius:8px;
background:var(--page);color:inherit}
button{margin-top:1rem;width:100%;font:inherit;font-weight:600;padding:.6rem;border:0;border-radius:8px;
background:var(--accent);color:var(--card);cursor:pointer}
code{font-size:.875em;color:var(--text)}.wrong{color:#d6336c}
"""
STYLE_HASH = "sha256-" + b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
"""Lets the content security policy allow this style and no other."""


def login_page(next_path: str, wrong: bool = False) -> str:
    """The page as HTML; it needs nothing else from the server."""
    note = '<p class="wrong" role="alert">That token is not right.</p>' if wrong else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>Sign in · Rankzero</title><style>{_STYLE}</style></head>
<body><form method="post" action="/login"><h1>Rankzero</h1>
<p>Open the address printed when the dashboard started, or paste the token that
<code>rankzero token</code> prints on the server.</p>{note}
<input type="hidden" name="next" value="{escape(next_path, quote=True)}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" autofocus required>
<button type="submit">Sign in</button></form></body></html>"""


class Login:
    """GET and POST /login."""

    def __init__(self, credentials: Credentials, now: Callable[[], float]) -> None:
        self._credentials = credentials
        self._now = now
        self._failures = Failures()

    async def show(self, request: Request) -> Response:
        """The form."""
        return HTMLResponse(login_page("/"), headers={"Cache-Control": "no-store"})

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


class Failures:
    """Wrong tokens are told in the log once a minute, not once a try."""

    def __init__(self) -> None:
        self._count = 0
        self._told_at = float("-inf")

    def count(self, now: float) -> None:
        """One more wrong token."""
        self._count += 1
        if now - self._told_at >= TOLD_EVERY_S:
            log.warning("%d sign-ins with a wrong token", self._count)
            self._count, self._told_at = 0, now


def signed_in(credentials: Credentials, target: str, now: float, secure: bool) -> Response:
    """A redirect to a path of ours that carries the session cookie."""
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
    """A path that no browser takes for another site's address; `/` when it might be one."""
    before_query = path.partition("?")[0]
    if not path.startswith("/") or path.startswith("//") or "\\" in path or "%5c" in before_query.lower():
        return "/"
    return "/" if any(ord(c) < 33 or ord(c) == 127 for c in path) else path


def _is_from_here(request: Request) -> bool:
    """Another site must not sign somebody in here."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    return site in ("same-origin", "none") and (origin is None or urlsplit(origin).netloc == host)
