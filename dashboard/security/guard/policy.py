"""One table of all routes: the action that each is, and the object that it is done to; nothing else is answered."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from enum import Enum, auto
from functools import cache
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.errors import error_body
from db import acting
from db.engine import Store
from db.exceptions import NoSuch
from db.people.ownership import ObjectKind
from db.people.permission import permit
from domain.people.rights import Denied
from domain.people.roles import Action


class Of(Enum):
    """How the object of a request is found, where its path does not name one."""

    NOTHING = auto()
    """It belongs to no project: nodes, people, the installation."""
    MANY = auto()
    """To be seen by everybody with any role; the handler leaves out what is hidden (`db.people.visibility`)."""
    BODY = auto()
    """The body or query names it: the service checks its project; without the role anywhere nothing is read."""
    SELF = auto()
    """The person's own account, for everybody who is signed in."""
    OTHERS = auto()
    """Workers, public pages, files without content of anybody, pages with a pass: the guard alone decides."""


class AccessRule(NamedTuple):
    """What a request needs."""

    action: Action
    of: Of | ObjectKind


SEE, LAUNCH, ACT, STOP, SEE_DELETED = Action.SEE, Action.LAUNCH, Action.ACT, Action.STOP, Action.SEE_DELETED
ADD, STEER, MANAGE, OPERATE = Action.ADD, Action.STEER, Action.MANAGE, Action.OPERATE
NOTHING, MANY, BODY, SELF, OTHERS = Of.NOTHING, Of.MANY, Of.BODY, Of.SELF, Of.OTHERS
RUN, CHECKPOINT, STUDY = ObjectKind.RUN, ObjectKind.CHECKPOINT, ObjectKind.STUDY
CHECKPOINT_TASK = ObjectKind.CHECKPOINT_TASK
ALERT, LINK, SNAPSHOT = ObjectKind.ALERT, ObjectKind.LINK, ObjectKind.SNAPSHOT

RULES: dict[str, dict[str, AccessRule]] = {
    "/api/runs": {"GET": AccessRule(SEE, MANY), "POST": AccessRule(LAUNCH, BODY)},
    "/api/named-runs": {"GET": AccessRule(SEE, MANY)},
    "/api/runs/seeds": {"POST": AccessRule(LAUNCH, BODY)},
    "/api/preview": {"POST": AccessRule(LAUNCH, BODY)},
    "/api/runs/{run_id}": {
        "GET": AccessRule(SEE, RUN),
        "PATCH": AccessRule(STEER, RUN),
        "DELETE": AccessRule(ACT, RUN),
    },
    "/api/deleted-runs": {"GET": AccessRule(SEE_DELETED, BODY)},
    "/api/deleted-runs/{deleted_id}": {"DELETE": AccessRule(Action.ERASE, BODY)},
    "/api/runs/{run_id}/restore": {"POST": AccessRule(ACT, BODY)},
    "/api/runs/{run_id}/wait": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/stop": {"POST": AccessRule(STOP, RUN)},
    "/api/runs/{run_id}/resume": {"GET": AccessRule(SEE, RUN), "POST": AccessRule(STEER, RUN)},
    "/api/runs/{run_id}/history": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/findings": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/collectives": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/preflight": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/timeline": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/ranks": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/stacks": {"GET": AccessRule(SEE, RUN), "POST": AccessRule(ACT, RUN)},
    "/api/runs/{run_id}/attempts": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/loggers": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/phases": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/phases/spans": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/diff": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/metrics": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/hardware": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/usage": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/metrics.csv": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/logs": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/logs/search": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/logs/pattern": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/logs/merged": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/logs/merged/search": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/checkpoints": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/retention": {"GET": AccessRule(SEE, RUN), "PUT": AccessRule(ACT, RUN)},
    "/api/runs/{run_id}/deleted-checkpoints": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/profiles": {"GET": AccessRule(SEE, RUN), "POST": AccessRule(ACT, RUN)},
    "/api/runs/{run_id}/profiles/{profile_id}": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/profiles/{profile_id}/ranks/{rank}/flame": {"GET": AccessRule(SEE, RUN)},
    "/api/runs/{run_id}/profiles/{profile_id}/ranks/{rank}/trace": {"GET": AccessRule(SEE, RUN)},
    "/tensorboard/{run_id}": {"GET": AccessRule(SEE, RUN)},
    "/tensorboard/{run_id}/": {"GET": AccessRule(SEE, BODY), "HEAD": AccessRule(SEE, BODY)},
    "/perfetto/{run_id}/": {"GET": AccessRule(SEE, RUN), "HEAD": AccessRule(SEE, RUN)},
    "/api/overview/ids": {"GET": AccessRule(SEE, MANY)},
    "/api/overview": {"GET": AccessRule(SEE, MANY)},
    "/api/search/completions": {"GET": AccessRule(SEE, MANY)},
    "/api/search/columns": {"GET": AccessRule(SEE, MANY)},
    "/api/compare": {"GET": AccessRule(SEE, MANY)},
    "/api/compare/names": {"GET": AccessRule(SEE, MANY)},
    "/api/compare/joined": {"GET": AccessRule(SEE, MANY)},
    "/api/compare/batches": {"GET": AccessRule(SEE, MANY)},
    "/api/compare/curves": {"GET": AccessRule(SEE, MANY)},
    "/api/export": {"HEAD": AccessRule(SEE, MANY), "GET": AccessRule(SEE, MANY)},
    "/api/logs/search": {"GET": AccessRule(SEE, MANY)},
    "/api/live": {"WEBSOCKET": AccessRule(SEE, BODY)},
    "/api/archives": {"POST": AccessRule(ADD, BODY)},
    "/api/imports": {"POST": AccessRule(ACT, BODY)},  # the points follow, which are acted with
    "/api/imports/{run_id}/points": {"POST": AccessRule(ACT, RUN)},
    "/api/watch": {"POST": AccessRule(ADD, BODY)},
    "/api/shared-links": {"GET": AccessRule(SEE, MANY), "POST": AccessRule(ACT, BODY)},
    "/api/shared-links/{link_id}": {"DELETE": AccessRule(STOP, LINK)},
    "/api/snapshots/{sha256}": {
        "GET": AccessRule(SEE, SNAPSHOT),
        "HEAD": AccessRule(LAUNCH, BODY),
        "PUT": AccessRule(LAUNCH, BODY),
    },
    "/api/snapshots/{sha256}/origin": {"PUT": AccessRule(LAUNCH, BODY)},
    "/api/snapshots/{sha256}/archive": {"HEAD": AccessRule(SEE, SNAPSHOT), "GET": AccessRule(SEE, SNAPSHOT)},
    "/api/uploads": {"POST": AccessRule(LAUNCH, BODY)},
    "/api/script": {"GET": AccessRule(LAUNCH, BODY)},
    "/api/checkpoints/{checkpoint_id}/send-again": {"POST": AccessRule(ACT, CHECKPOINT)},
    "/api/checkpoints/{checkpoint_id}/merge": {"POST": AccessRule(ACT, CHECKPOINT)},
    "/api/checkpoints/{checkpoint_id}/show": {"POST": AccessRule(ACT, CHECKPOINT)},
    "/api/checkpoints/{checkpoint_id}/diff": {"POST": AccessRule(ACT, CHECKPOINT)},
    "/api/checkpoints/{checkpoint_id}/push": {"POST": AccessRule(ACT, CHECKPOINT)},
    "/api/runs/{run_id}/checkpoint-tasks": {"GET": AccessRule(SEE, RUN)},
    "/api/checkpoint-tasks/{task_id}": {"GET": AccessRule(SEE, CHECKPOINT_TASK)},
    "/api/checkpoint-tasks/{task_id}/cancel": {"POST": AccessRule(ACT, CHECKPOINT_TASK)},
    "/api/checkpoints/{checkpoint_id}": {"DELETE": AccessRule(ACT, CHECKPOINT)},
    "/api/checkpoints/{checkpoint_id}/pin": {"PUT": AccessRule(ACT, CHECKPOINT), "DELETE": AccessRule(ACT, CHECKPOINT)},
    "/api/checkpoints/{checkpoint_id}/restore": {"POST": AccessRule(ACT, CHECKPOINT)},
    "/api/storage": {"GET": AccessRule(SEE, MANY)},
    "/api/deleted-checkpoints": {"DELETE": AccessRule(Action.ERASE, BODY)},
    "/api/checkpoints/{checkpoint_id}/file": {"HEAD": AccessRule(SEE, CHECKPOINT), "GET": AccessRule(SEE, CHECKPOINT)},
    "/api/nodes": {"GET": AccessRule(SEE, MANY)},
    "/api/nodes/{node}": {"DELETE": AccessRule(OPERATE, NOTHING)},
    "/api/nodes/{node}/drain": {"GET": AccessRule(OPERATE, NOTHING), "POST": AccessRule(OPERATE, NOTHING)},
    "/api/nodes/{node}/undrain": {"POST": AccessRule(OPERATE, NOTHING)},
    "/api/nodes/{node}/release": {"POST": AccessRule(OPERATE, NOTHING)},
    "/api/nodes/{node}/test": {"POST": AccessRule(OPERATE, NOTHING)},
    "/api/nodes/{node}/incidents": {"GET": AccessRule(SEE, MANY)},
    "/api/nodes/{node}/end-unknown": {"POST": AccessRule(OPERATE, NOTHING)},
    "/api/tests/{test_id}": {"GET": AccessRule(SEE, MANY)},
    "/api/join-tokens": {"GET": AccessRule(OPERATE, NOTHING), "POST": AccessRule(OPERATE, NOTHING)},
    "/api/join-tokens/{token_id}": {"DELETE": AccessRule(OPERATE, NOTHING)},
    "/api/node-installations": {"GET": AccessRule(OPERATE, NOTHING)},
    "/api/node-installations/{key}": {"PUT": AccessRule(OPERATE, NOTHING)},
    "/api/preflight": {"GET": AccessRule(SEE, MANY), "POST": AccessRule(OPERATE, NOTHING)},
    "/api/preflight/{check_id}": {"GET": AccessRule(SEE, MANY)},
    "/api/cluster": {"GET": AccessRule(SEE, MANY)},
    "/metrics": {"GET": AccessRule(SEE, MANY)},
    "/api/info": {"GET": AccessRule(SEE, MANY)},
    "/mcp": {"POST": AccessRule(SEE, MANY)},  # each tool asks routes of this table
    "/api/backup": {"POST": AccessRule(OPERATE, NOTHING)},
    "/api/sweeps": {"GET": AccessRule(SEE, MANY), "POST": AccessRule(LAUNCH, BODY)},
    "/api/sweeps/{study_id}": {"GET": AccessRule(SEE, STUDY)},
    "/api/sweeps/{study_id}/curves": {"GET": AccessRule(SEE, STUDY)},
    "/api/sweeps/{study_id}/stop": {"POST": AccessRule(STOP, STUDY)},
    "/api/scaling-studies": {"GET": AccessRule(SEE, MANY), "POST": AccessRule(LAUNCH, BODY)},
    "/api/scaling-studies/{study_id}": {"GET": AccessRule(SEE, STUDY)},
    "/api/scaling-studies/{study_id}/stop": {"POST": AccessRule(STOP, STUDY)},
    "/api/alerts": {"GET": AccessRule(SEE, MANY), "POST": AccessRule(ADD, BODY)},
    "/api/alerts/{alert_id}": {"GET": AccessRule(SEE, ALERT), "DELETE": AccessRule(STOP, ALERT)},
    "/api/alerts/{alert_id}/test": {"POST": AccessRule(ACT, ALERT)},
    "/api/notifications": {"GET": AccessRule(SEE, MANY)},
    "/api/notifications/shown": {"POST": AccessRule(ACT, SELF)},
    "/api/bulk-actions": {"POST": AccessRule(ACT, BODY)},
    "/api/bulk-actions/consequence": {"POST": AccessRule(ACT, BODY)},
    "/api/bulk-actions/{action_id}": {"GET": AccessRule(SEE, BODY)},
    "/api/bulk-actions/{action_id}/cancel": {"POST": AccessRule(ACT, BODY)},
    "/api/views": {"GET": AccessRule(SEE, MANY), "PUT": AccessRule(ACT, BODY), "DELETE": AccessRule(ACT, BODY)},
    "/api/project": {"GET": AccessRule(SEE, BODY)},
    "/api/docs": {"GET": AccessRule(SEE, MANY)},
    "/api/openapi.json": {"GET": AccessRule(SEE, MANY), "HEAD": AccessRule(SEE, MANY)},
    "/api/secrets": {"GET": AccessRule(SEE, SELF)},
    "/api/secrets/{name}": {"PUT": AccessRule(ACT, SELF), "DELETE": AccessRule(ACT, SELF)},
    "/api/whoami": {"GET": AccessRule(SEE, SELF)},
    "/api/tokens": {"GET": AccessRule(SEE, SELF), "POST": AccessRule(SEE, SELF)},
    "/api/tokens/{name}": {"DELETE": AccessRule(SEE, SELF)},
    "/device": {"GET": AccessRule(SEE, SELF), "HEAD": AccessRule(SEE, SELF), "POST": AccessRule(MANAGE, SELF)},
    "/api/audit": {"GET": AccessRule(Action.AUDIT, BODY)},
    "/api/audit.jsonl": {"GET": AccessRule(Action.AUDIT, BODY)},
    "/api/users": {"GET": AccessRule(MANAGE, BODY)},
    "/api/users/{name}": {
        "GET": AccessRule(MANAGE, BODY),
        "PATCH": AccessRule(MANAGE, BODY),
        "DELETE": AccessRule(OPERATE, NOTHING),
    },
    "/api/users/{name}/role-change": {"GET": AccessRule(MANAGE, BODY)},
    "/api/users/{name}/removal": {"GET": AccessRule(OPERATE, NOTHING)},
    "/api/invitations": {"GET": AccessRule(MANAGE, BODY), "POST": AccessRule(MANAGE, BODY)},
    "/api/invitations/{invitation_id}": {"DELETE": AccessRule(MANAGE, BODY)},
    "/api/projects": {"GET": AccessRule(SEE, MANY)},
    "/api/projects/{project:path}/privacy": {"GET": AccessRule(MANAGE, BODY), "PUT": AccessRule(MANAGE, BODY)},
    "/api/projects/{project:path}/retention": {"GET": AccessRule(SEE, BODY), "PUT": AccessRule(MANAGE, BODY)},
    "/api/projects/{project:path}/members": {"GET": AccessRule(SEE, BODY)},
    "/api/me": {"GET": AccessRule(SEE, SELF), "PATCH": AccessRule(SEE, SELF)},
    "/api/me/password": {"POST": AccessRule(SEE, SELF)},
    "/api/me/sessions": {"GET": AccessRule(SEE, SELF), "DELETE": AccessRule(SEE, SELF)},
    "/api/me/sessions/{session_id}": {"DELETE": AccessRule(SEE, SELF)},
    "/logout": {"POST": AccessRule(SEE, SELF)},
}
"""Paths as the routes declare them; what is below the prefixes of UNJUDGED needs no rule."""
UNJUDGED = frozenset(
    {
        "/api/health", "/api/login-requests", "/api/worker", "/assets", "/invite", "/login", "/shared",
        "/tensorboard/{run_id}/{issued}", "/perfetto/{run_id}/{issued}",
    }
)  # fmt: skip
"""Prefixes of routes that the guard alone decides on (`Of.OTHERS`)."""
PAGES = AccessRule(SEE, MANY)
"""Streamlit's pages and files, and what the browser loads first: each page asks the service for what it shows."""


def guarded(routes: Iterable[BaseRoute], store: Store) -> list[BaseRoute]:
    """Return the routes with a door before each. Raises LookupError for a route that no rule is for.

    They are copies: modules share theirs between applications, each of which has its own store."""
    return [_with_door(route, store) if isinstance(route, Route | WebSocketRoute) else route for route in routes]


def _with_door(route: Route | WebSocketRoute, store: Store) -> Route | WebSocketRoute:
    rules = {method: rule_of(route.path, method) for method in methods_of(route)}
    copied = copy(route)
    copied.app = Door(route.app, rules, store)
    return copied


def methods_of(route: Route | WebSocketRoute) -> set[str]:
    """The methods of a route; a WebSocket's is `WEBSOCKET`."""
    return set(route.methods or ()) if isinstance(route, Route) else {"WEBSOCKET"}


@cache
def rule_of(path: str, method: str) -> AccessRule:
    """The rule for a route's path and a method. Raises LookupError."""
    if any(path == prefix or path.startswith(f"{prefix}/") for prefix in UNJUDGED):
        return AccessRule(SEE, OTHERS)
    try:
        return RULES[path][method]
    except KeyError:
        raise LookupError(f"{method} {path} has no rule in dashboard/security/guard/policy.py.") from None


class Door:
    """Lets a request through to its route if its sender may make it."""

    def __init__(self, app: ASGIApp, rules: dict[str, AccessRule], store: Store) -> None:
        self.app, self.rules, self._store = app, rules, store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with 403, or with 404 where its object is hidden."""
        rule = self.rules[scope.get("method", "WEBSOCKET")]
        try:
            status, message = 403, await self._refusal(rule, scope)
        except Denied as error:
            status, message = 403, str(error)
        except NoSuch as error:
            status, message = 404, str(error)
        if message is None:
            await self.app(scope, receive, send)
        else:
            await JSONResponse(error_body(None, message), status)(scope, receive, send)

    async def _refusal(self, rule: AccessRule, scope: Scope) -> str | None:
        rights = acting.rights()
        if isinstance(rule.of, ObjectKind):
            await run_in_threadpool(self._permit, rule.action, rule.of, str(scope["path_params"][rule.of.value]))
        elif rule.of is Of.NOTHING:
            return rights.refusal(rule.action, None)
        elif rule.of is Of.BODY:
            return rights.refusal_anywhere(rule.action) if rule.action is not Action.SEE else None
        elif rule.of is Of.MANY:
            return rights.refusal_anywhere(rule.action)
        elif rule.of is Of.SELF:
            return rights.scope_refusal(rule.action)
        return None

    def _permit(self, action: Action, kind: ObjectKind, object_id: str) -> None:
        with self._store.read() as session:
            permit(session, action, kind, object_id)
