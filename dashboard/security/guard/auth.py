"""The guard in front of every page, route and WebSocket: authentication, host and origin checks, permissions."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from http.cookies import CookieError, SimpleCookie
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.errors import error_body
from dashboard.security.guard.sandbox import METHODS, PREFIXES, Passes
from dashboard.security.guard.visits import Visits
from dashboard.security.header_values import NO_STORE
from dashboard.security.identity.access_tokens import AccessTokens, TokenHolder
from dashboard.security.identity.fresh_answers import FreshAnswers
from dashboard.security.identity.identities import Identities
from dashboard.security.identity.sessions import CURRENT, PERSON, UNREADABLE, Sessions
from dashboard.security.keys.token_files import Credentials
from dashboard.security.limits import TryLater
from dashboard.security.proxies import Origins, is_https
from dashboard.security.signing_in.departures import while_connected
from dashboard.security.signing_in.login import Entrance, LoginPage, local_path
from dashboard.security.signing_in.sign_ins import SignIns
from db import acting
from db.nodes.join_tokens import Admitted, TurnedAway
from db.people.admission import NotAdmitted
from db.people.login_sessions import StoredSession
from domain.clock import SYSTEM_CLOCK
from domain.people.rights import NOBODY as NOBODY_RIGHTS
from domain.people.rights import OWNER, PROGRAM, Rights, rights_of_owner


class Guard:
    """Checks every request. Pure ASGI middleware, because Starlette's BaseHTTPMiddleware skips WebSockets."""

    def __init__(
        self,
        app: ASGIApp,
        credentials: Credentials,
        node_of_token: Callable[[bytes], str | TurnedAway | None],
        rights_of_node: Callable[[str], Rights],
        judge_join: Callable[[bytes], Admitted | TurnedAway | None],
        identities: Identities,
        sessions: Sessions,
        entrance: Entrance,
        login: LoginPage,
        sign_ins: SignIns,
        proxy_user: ProxyUser,
        visits: Visits,
        access_tokens: AccessTokens,
        origins: Origins,
        allowed_hosts: Collection[str] = (),
        now: Callable[[], float] = SYSTEM_CLOCK.wall,
    ) -> None:
        self.app = app
        self.credentials = credentials
        self.node_of_token, self.rights_of_node = node_of_token, rights_of_node
        self.judge_join = judge_join
        self.identities, self.sessions, self.visits = identities, sessions, visits
        self.entrance, self.login, self.sign_ins = entrance, login, sign_ins
        self.access_tokens, self.proxy_user = access_tokens, proxy_user
        self.origins = origins
        self.allowed_hosts = frozenset(h.lower().rstrip(".") for h in allowed_hosts)
        self.now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with `state.principal` set, or answer it here."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        with acting.requested_from((scope.get("client") or (None,))[0]):
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        verdict = await self._judge(scope, headers, receive)
        if not isinstance(verdict, Principal):
            await self._refuse(verdict, scope, headers, receive, send)
            return
        scope.setdefault("state", {})["principal"] = verdict
        CURRENT.set(verdict.session)
        if verdict.rights.by is not None:
            self.sessions.saw(verdict.rights.by)
        with acting.acting(verdict.rights), self.visits.naming(scope, verdict.rights):
            await self._pass_on(verdict, scope, receive, send)

    async def _pass_on(self, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
        user = principal.rights.by
        if scope["type"] == "websocket" and principal.via == "cookie" and user is not None:
            key = principal.session.secret_hash if principal.session is not None else PERSON + user
            await self.sessions.keep_open(key, user, self.app, scope, receive, send)
        elif scope["type"] == "websocket" and principal.access_token is not None:
            await self.access_tokens.sockets.keep_open(principal.access_token, self.app, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _refuse(
        self, verdict: Refusal | Response, scope: Scope, headers: Headers, receive: Receive, send: Send
    ) -> None:
        if isinstance(verdict, Response):
            response = verdict
        elif scope["type"] == "http" and verdict.status == 401 and _wants_page(scope, headers):
            response = await self.login.page(401, _address(scope))
        else:
            response = JSONResponse(error_body(verdict.field, verdict.message), verdict.status)
        if isinstance(verdict, Refusal) and verdict.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        response.headers.update(NO_STORE)
        if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1008, "reason": ""})
            return
        await response(scope, receive, send)

    async def _judge(self, scope: Scope, headers: Headers, receive: Receive) -> Principal | Refusal | Response:
        if not is_host_allowed(headers.getlist("host"), self.allowed_hosts):
            return Refusal(
                421,
                "This dashboard does not answer to that host name. Use localhost or an IP address, "
                "or add the name to RANKZERO_ALLOWED_HOSTS.",
            )
        try:
            if (holder := await self._by_pass(scope)) is not None:
                return holder
            if (exchange := await self._exchange_token(scope, receive)) is not None:
                return exchange
            principal = await self._identify(scope, headers)
        except UNREADABLE:
            return AWAY
        if isinstance(principal, Refusal):
            return principal
        if principal is None:
            if scope["path"] == REGISTER and "authorization" in headers:
                return NO_JOIN_TOKEN
            return NOBODY if _is_public(scope) else UNKNOWN
        refusal = _forbidden(principal, scope) or _not_for_agents(principal, scope, headers, self.origins)
        if refusal is None and principal.via == "cookie":
            refusal = _cross_site(scope, headers, self.origins)
        return refusal or principal

    async def _by_pass(self, scope: Scope) -> Principal | None:
        """The holder of a valid pass in the path, until the session that it was given to has ended."""
        path = scope["path"]
        if scope["type"] != "http" or scope["method"] not in METHODS or not path.startswith(PREFIXES):
            return None
        name, _, key = (Passes(self.credentials).holder(path, self.now()) or "").partition(" ")
        if key.startswith(" "):
            token = await run_in_threadpool(self.access_tokens.with_hash, key.strip())
            return PASS_HOLDER.acting_for(token.rights) if isinstance(token, TokenHolder) else None
        if not name or (key and await self.sessions.with_key(key) is None):
            return None
        return PASS_HOLDER.acting_for(await run_in_threadpool(self.visits.identities.person, name))

    async def _exchange_token(self, scope: Scope, receive: Receive) -> Response | Refusal | None:
        """Exchange the `?token=` of the address printed at start for a cookie, and remove it from the address bar."""
        path = scope["path"]
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or path.startswith("/api/"):
            return None
        tokens = [value for key, value in _query(scope) if key == "token"]
        if not tokens:
            return None
        token = tokens[0].encode(errors="replace")
        try:
            is_right = await while_connected(receive, lambda: self.sign_ins.is_right(token, scope))
        except TryLater as error:
            return JSONResponse(error_body(None, str(error)), error.status, error.headers)
        if not is_right:
            await self.entrance.refused()
            return UNKNOWN
        return await self.entrance.signed_in(scope, _address(scope), OWNER, "token")

    async def _identify(self, scope: Scope, headers: Headers) -> Principal | Refusal | None:
        authorization = headers.get("authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            return self._bearer(token.strip().encode("latin-1")) if scheme.lower() == "bearer" else None
        if self.proxy_user.header is not None and self.proxy_user.header in headers:
            return await self._by_proxy(headers.getlist(self.proxy_user.header))
        cookie = _cookie(headers, self.credentials.cookie_name_for(is_https(scope)))
        session = await self.sessions.find(cookie) if cookie is not None else None
        rights = await run_in_threadpool(self.identities.rights, session.user) if session is not None else None
        return None if rights is None else Principal("user", "cookie", rights=rights, session=session)

    async def _by_proxy(self, values: list[str]) -> Principal | Refusal:
        """The person whom a listed proxy names in this request; other senders' headers are removed before."""
        try:
            name = await run_in_threadpool(self.proxy_user.name_of, ",".join(values))
        except NotAdmitted as error:
            await self.entrance.refused(",".join(values))
            return Refusal(403, str(error))
        rights = await run_in_threadpool(self.identities.rights, name)
        return UNKNOWN if rights is None else Principal("user", "cookie", rights=rights)

    def _bearer(self, token: bytes) -> Principal | Refusal | None:
        if not token or len(token) > LONGEST_TOKEN_BYTES:
            return None
        if self.credentials.is_user(token):
            return Principal("user", "bearer", rights=rights_of_owner())
        if isinstance(holder := self.access_tokens.judge(token), TokenHolder):
            return Principal("user", "bearer", access_token=holder.name, rights=holder.rights)
        if isinstance(holder, TurnedAway):
            return Refusal(401, holder.message)
        if self.credentials.is_join(token):
            return Principal("join", "bearer", rights=PROGRAM)
        if self.credentials.is_metrics(token):
            return Principal("metrics", "bearer", rights=PROGRAM)
        if (fence := self.credentials.job_of(token)) is not None:
            return Principal("join", "bearer", job=fence, rights=PROGRAM)
        if (task := self.credentials.attempt_of(token)) is not None:
            return Principal("node", "bearer", task[1], attempt=task[0], rights=self.rights_of_node(task[1]))
        verdict = self.judge_join(token) or self.node_of_token(token)
        if isinstance(verdict, TurnedAway):
            return Refusal(410, verdict.message, "node") if verdict.is_node else Refusal(401, verdict.message)
        if isinstance(verdict, Admitted):
            return Principal("join", "bearer", join_token=verdict.id, rights=PROGRAM)
        return None if verdict is None else Principal("node", "bearer", verdict, rights=self.rights_of_node(verdict))


class ProxyUser:
    """The person who signed in through a proxy in front of the dashboard, by the address in its header."""

    def __init__(self, header: str | None, admit: Callable[[str], str], now: Callable[[], float]) -> None:
        """`admit` finds or makes the account of an address. Raises NotAdmitted."""
        self.header = header
        """None: no proxy signs people in, and no header names anybody."""
        self.name_of = FreshAnswers(admit, now).answer
        """The name of an address's account. Raises NotAdmitted."""


PUBLIC = frozenset(
    {(method, "/login") for method in ("GET", "HEAD", "POST")}
    | {(method, path) for method in ("GET", "HEAD") for path in ("/api/health", "/login/provider", "/login/callback")}
    | {("POST", "/api/login-requests"), ("POST", "/api/login-requests/outcome")}
)
"""The routes that need no credential; a test compares this list with all routes."""
SHARED = re.compile(r"/shared/[^/]{1,200}")
"""Read-only links to runs: the route compares the token, which opens nothing else."""
INVITATION = re.compile(r"/invite/[^/]{1,200}")
"""Links with which invited people make an account: the route compares the secret."""
REGISTER = "/api/worker/register"
METRICS = "/metrics"
MCP = "/mcp"
LONGEST_TOKEN_BYTES = 512
FORMS = ("/device", "/login", "/invite/")
"""Beginnings of the addresses of plain pages' forms."""
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
    attempt: int | None = None
    """The fencing token of the only attempt that a node's process speaks for, with that attempt's own token."""
    access_token: str | None = None
    """The name under which the WebSockets of a person's token are kept."""
    session: StoredSession | None = None
    """The session whose cookie it is."""
    rights: Rights = NOBODY_RIGHTS
    """What the sender may do; the guard lets workers and scrapers reach their own routes only."""

    def acting_for(self, rights: Rights) -> Principal:
        """This sender with other rights."""
        return replace(self, rights=rights)


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
AWAY = Refusal(503, "The store is busy or cannot be reached. Nothing is lost; try again.")
NO_JOIN_TOKEN = Refusal(
    401,
    "This is not a join token of this dashboard. Create one on its Nodes page, "
    "or with `rankzero token --join --expires 24h`.",
)


def _is_public(scope: Scope) -> bool:
    if scope["type"] != "http":
        return False
    method, path = scope["method"], scope["path"]
    if (method, path) in PUBLIC or (method in ("GET", "HEAD") and SHARED.fullmatch(path)):
        return True
    return method in ("GET", "HEAD", "POST") and bool(INVITATION.fullmatch(path))


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


def _forbidden(principal: Principal, scope: Scope) -> Refusal | None:
    path = scope["path"]
    if principal.kind == "join" and not (path == REGISTER and scope.get("method") == "POST"):
        return Refusal(403, "The join token only registers workers.")
    if principal.kind == "metrics" and not (path == METRICS and scope.get("method") == "GET"):
        return Refusal(403, "The metrics token only reads /metrics.")
    if principal.kind == "node" and not path.startswith("/api/worker/"):
        return Refusal(403, "A worker's token is valid only for its own tasks.")
    if principal.attempt is not None and not _is_of_attempt(principal.attempt, path, scope.get("method")):
        return Refusal(403, "An attempt's token is valid only for this attempt.")
    if principal.kind == "user" and path.startswith("/api/worker/"):
        return Refusal(403, "This address is for workers and requires a worker's token.")
    return None


def _not_for_agents(principal: Principal, scope: Scope, headers: Headers, origins: Origins) -> Refusal | None:
    """Refuse a browser at the tools of agents: its cookie, and another site's page with whatever credential."""
    if scope["path"] != MCP:
        return None
    if scope.get("method") != "POST":
        return Refusal(405, "This address takes POST requests of the Model Context Protocol only.")
    if principal.via != "bearer":
        return Refusal(403, "This address is for agents: send an access token as Authorization: Bearer.")
    origin = headers.get("origin")
    if origin is not None and not origins.is_own(origin, HTTPConnection(scope)):
        return Refusal(403, "The request came from another site's page.")
    return None


def _is_of_attempt(fence: int, path: str, method: object) -> bool:
    """Whether an attempt's token opens this address; routes that name no attempt check whose the object is."""
    place, is_read = path.removeprefix("/api/worker/"), method in ("GET", "HEAD")
    if place.startswith(("checkpoints/", f"attempts/{fence}/")) or place == "pieces":
        return True
    return is_read and (place == "time" or place.startswith("snapshots/"))


def _cross_site(scope: Scope, headers: Headers, origins: Origins) -> Refusal | None:
    """Refuse requests of other sites' pages: browsers add the cookie to these, too."""
    if scope["type"] == "http" and scope["method"] in ("GET", "HEAD"):
        return None
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    same_origin = origin is not None and origins.is_own(origin, HTTPConnection(scope))
    if scope["type"] == "websocket":
        return None if same_origin else Refusal(403, "The WebSocket was opened by another site's page.")
    if site not in (None, "same-origin") or not (same_origin or (origin is None and site == "same-origin")):
        return Refusal(403, "The request came from another site's page.")
    if scope["path"] == UPLOADS and headers.get("content-type") == "application/octet-stream":
        return None
    if scope["path"].startswith(FORMS) and headers.get("content-type") == "application/x-www-form-urlencoded":
        return None
    if not scope["path"].startswith(STREAMLIT_UPLOADS) and not _is_json_or_empty(headers):
        return Refusal(415, "The body must be JSON (Content-Type: application/json).")
    return None


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


def _wants_page(scope: Scope, headers: Headers) -> bool:
    path = scope["path"]
    is_page = not path.startswith(("/api/", "/_stcore/", "/assets/", "/static/", "/media/", "/component/"))
    return is_page and scope["method"] == "GET" and "text/html" in headers.get("accept", "")
