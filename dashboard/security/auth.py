"""The guard in front of every page, route and WebSocket: authentication, host and origin checks, permissions."""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.errors import error_body
from dashboard.security.login import LATER, local_path, signed_in
from dashboard.security.plain_pages import login_page
from dashboard.security.sandbox import METHODS, PREFIXES, Passes
from dashboard.security.sign_ins import Sessions, SignIns, TooManyTries
from dashboard.security.token_files import Credentials
from db.nodes.join_tokens import Admitted, TurnedAway


class Guard:
    """Checks every request. Pure ASGI middleware, because Starlette's BaseHTTPMiddleware skips WebSockets."""

    def __init__(
        self,
        app: ASGIApp,
        credentials: Credentials,
        node_of_token: Callable[[bytes], str | TurnedAway | None],
        judge_join: Callable[[bytes], Admitted | TurnedAway | None],
        sessions: Sessions,
        sign_ins: SignIns,
        allowed_hosts: Collection[str] = (),
        now: Callable[[], float] = time.time,
    ) -> None:
        self.app = app
        self.credentials = credentials
        self.node_of_token = node_of_token
        self.judge_join = judge_join
        self.sessions, self.sign_ins = sessions, sign_ins
        self.allowed_hosts = frozenset(h.lower().rstrip(".") for h in allowed_hosts)
        self.now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with `state.principal` set, or answer it here."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        verdict = await self._judge(scope, headers)
        if isinstance(verdict, Principal):
            scope.setdefault("state", {})["principal"] = verdict
            cookie = _cookie(headers, self.credentials.cookie_name)
            if scope["type"] == "websocket" and verdict.via == "cookie" and cookie is not None:
                await self.sessions.keep_open(cookie, self.app, scope, receive, send)
            else:
                await self.app(scope, receive, send)
        else:
            await _answer(verdict, scope, headers, receive, send)

    async def _judge(self, scope: Scope, headers: Headers) -> Principal | Refusal | Response:
        if not is_host_allowed(headers.getlist("host"), self.allowed_hosts):
            return Refusal(
                421,
                "This dashboard does not answer to that host name. Use localhost or an IP address, "
                "or add the name to RANKZERO_ALLOWED_HOSTS.",
            )
        if self._has_pass(scope):
            return PASS_HOLDER
        exchange = await self._exchange_token(scope)
        if exchange is not None:
            return exchange
        principal = self._identify(headers)
        if isinstance(principal, Refusal):
            return principal
        if principal is None:
            if scope["path"] == REGISTER and "authorization" in headers:
                return NO_JOIN_TOKEN
            return NOBODY if _is_public(scope) else UNKNOWN
        return _forbidden(principal, scope, headers) or principal

    def _has_pass(self, scope: Scope) -> bool:
        path = scope["path"]
        if scope["type"] != "http" or scope["method"] not in METHODS or not path.startswith(PREFIXES):
            return False
        return Passes(self.credentials).admits(path, self.now())

    async def _exchange_token(self, scope: Scope) -> Response | Refusal | None:
        """Exchange the `?token=` of the address printed at start for a cookie, and remove it from the address bar."""
        path = scope["path"]
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or path.startswith("/api/"):
            return None
        tokens = [value for key, value in _query(scope) if key == "token"]
        if not tokens:
            return None
        try:
            is_right = await self.sign_ins.is_right(tokens[0].encode(errors="replace"), scope)
        except TooManyTries:
            return Refusal(429, LATER)
        if not is_right:
            return UNKNOWN
        return signed_in(self.credentials, _address(scope), self.now(), secure=scope.get("scheme") == "https")

    def _identify(self, headers: Headers) -> Principal | Refusal | None:
        authorization = headers.get("authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            return self._bearer(token.strip().encode("latin-1")) if scheme.lower() == "bearer" else None
        cookie = _cookie(headers, self.credentials.cookie_name)
        if cookie is None or self.sessions.is_ended(cookie):
            return None
        if self.credentials.is_cookie(cookie, self.now()):
            return Principal("user", "cookie")
        return None

    def _bearer(self, token: bytes) -> Principal | Refusal | None:
        if not token or len(token) > LONGEST_TOKEN_BYTES:
            return None
        if self.credentials.is_user(token):
            return Principal("user", "bearer")
        if self.credentials.is_join(token):
            return Principal("join", "bearer")
        if self.credentials.is_metrics(token):
            return Principal("metrics", "bearer")
        if (fence := self.credentials.job_of(token)) is not None:
            return Principal("join", "bearer", job=fence)
        verdict = self.judge_join(token) or self.node_of_token(token)
        if isinstance(verdict, TurnedAway):
            return Refusal(410, verdict.message, "node") if verdict.is_node else Refusal(401, verdict.message)
        if isinstance(verdict, Admitted):
            return Principal("join", "bearer", join_token=verdict.id)
        return None if verdict is None else Principal("node", "bearer", verdict)


PUBLIC = frozenset({(m, "/login") for m in ("GET", "HEAD", "POST")} | {(m, "/api/health") for m in ("GET", "HEAD")})
"""The routes that need no credential; a test compares this list with all routes."""
SHARED = re.compile(r"/shared/[^/]{1,200}")
"""Read-only links to runs: the route compares the token, which opens nothing else."""
REGISTER = "/api/worker/register"
METRICS = "/metrics"
LONGEST_TOKEN_BYTES = 512
UPLOADS = "/api/uploads"
"""Takes bytes; browsers send these across sites only with the server's consent, which we never give."""
STREAMLIT_UPLOADS = "/_stcore/upload_file"
"""Streamlit's own route takes multipart bodies and checks a cross-site token of its own."""


@dataclass(frozen=True)
class Principal:
    """The sender of a request, and the credential it used."""

    kind: Literal["user", "join", "node", "metrics", "nobody"]
    via: Literal["bearer", "cookie", "pass", "none"]
    node_id: str | None = None
    join_token: str | None = None
    """The id of the join token; None for the server's own."""
    job: int | None = None
    """The fencing token of the attempt whose Slurm job's workers may register."""


NOBODY = Principal("nobody", "none")
PASS_HOLDER = Principal("nobody", "pass")
"""A request of TensorBoard's or Perfetto's page, which may reach its own run's TensorBoard or Perfetto's files only."""


@dataclass(frozen=True)
class Refusal:
    """The status and message of a rejected request."""

    status: int
    message: str
    field: str | None = None


UNKNOWN = Refusal(401, "A valid token is needed: sign in, or send it as Authorization: Bearer.")
NO_JOIN_TOKEN = Refusal(
    401,
    "This is not a join token of this dashboard. Create one on its Nodes page, "
    "or with `rankzero token --join --expires 24h`.",
)


def _is_public(scope: Scope) -> bool:
    if scope["type"] != "http":
        return False
    method, path = scope["method"], scope["path"]
    return (method, path) in PUBLIC or (method in ("GET", "HEAD") and bool(SHARED.fullmatch(path)))


def is_host_allowed(hosts: list[str], allowed: Collection[str]) -> bool:
    """Whether the Host header is an IP address, localhost or a configured name.

    An attacker can point a name of theirs at this server (DNS rebinding), but not an address."""
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/@\s]+)(:\d{1,5})?", hosts[0]) if len(hosts) == 1 else None
    if match is None:
        return False
    name = match[1].lower().rstrip(".")
    if name == "localhost" or name in allowed:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _query(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _address(scope: Scope) -> str:
    """The request's path and query without a token, as an address on this site."""
    query = urlencode([(key, value) for key, value in _query(scope) if key != "token"])
    return local_path(quote(scope["path"])) + (f"?{query}" if query else "")


def _forbidden(principal: Principal, scope: Scope, headers: Headers) -> Refusal | None:
    path = scope["path"]
    if principal.kind == "join" and not (path == REGISTER and scope.get("method") == "POST"):
        return Refusal(403, "The join token only registers workers.")
    if principal.kind == "metrics" and not (path == METRICS and scope.get("method") == "GET"):
        return Refusal(403, "The metrics token only reads /metrics.")
    if principal.kind == "node" and not path.startswith("/api/worker/"):
        return Refusal(403, "A worker's token is valid only for its own tasks.")
    if principal.kind == "user" and path.startswith("/api/worker/"):
        return Refusal(403, "This address is for workers and requires a worker's token.")
    return _cross_site(scope, headers) if principal.via == "cookie" else None


def _cross_site(scope: Scope, headers: Headers) -> Refusal | None:
    """Refuse requests of other sites' pages: browsers add the cookie to these, too."""
    if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
        return None
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    same_origin = origin is not None and _is_same_origin(origin, headers["host"])
    if scope["type"] == "websocket":
        return None if same_origin else Refusal(403, "The WebSocket was opened by another site's page.")
    if site not in (None, "same-origin") or not (same_origin or (origin is None and site == "same-origin")):
        return Refusal(403, "The request came from another site's page.")
    if scope["path"] == UPLOADS and headers.get("content-type") == "application/octet-stream":
        return None
    if not scope["path"].startswith(STREAMLIT_UPLOADS) and not _is_json_or_empty(headers):
        return Refusal(415, "The body must be JSON (Content-Type: application/json).")
    return None


def _is_same_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _is_json_or_empty(headers: Headers) -> bool:
    content_type = headers.get("content-type")
    if content_type is None:
        return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
    return content_type.partition(";")[0].strip().lower() == "application/json"


def _cookie(headers: Headers, name: str) -> str | None:
    for line in headers.getlist("cookie"):
        for pair in line.split(";"):
            if pair.partition("=")[0].strip() == name:
                try:
                    return SimpleCookie(pair.strip())[name].value
                except (CookieError, KeyError):
                    return None
    return None


async def _answer(verdict: Refusal | Response, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
    if isinstance(verdict, Response):
        response = verdict
    elif scope["type"] == "http" and verdict.status == 401 and _wants_page(scope, headers):
        response = HTMLResponse(login_page(_address(scope)), 401)
    else:
        response = JSONResponse(error_body(verdict.field, verdict.message), verdict.status)
    if isinstance(verdict, Refusal) and verdict.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    response.headers["Cache-Control"] = "no-store"
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    await response(scope, receive, send)


def _wants_page(scope: Scope, headers: Headers) -> bool:
    path = scope["path"]
    is_page = not path.startswith(("/api/", "/_stcore/", "/assets/", "/static/", "/media/", "/component/"))
    return is_page and scope["method"] == "GET" and "text/html" in headers.get("accept", "")
