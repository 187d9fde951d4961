"""HTTP statuses for the exceptions of the store."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dashboard.errors import error_body
from dashboard.security.keys.secret_key import SecretsUnreadable
from dashboard.security.limits import TryLater
from db.engine import StoreGone
from db.exceptions import NoSuch, NotOwner, Superseded, WrongState
from db.identity import UnknownAttempt
from db.nodes.node_reports import IdentityEnded, NameTaken
from db.people.invitations import InvitationEnded
from domain.people.rights import Denied
from domain.requests.errors import InvalidRequest


def install(app: FastAPI) -> None:
    """Register handlers that answer each exception of the store with its status and sentence."""
    for kind in STATUS:
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(TryLater, _later)
    app.add_exception_handler(Exception, _unexpected)


STATUS: dict[type[Exception], int] = {
    InvalidRequest: 422,
    NoSuch: 404,
    WrongState: 409,
    Superseded: 409,
    NameTaken: 409,
    IdentityEnded: 410,
    NotOwner: 403,
    Denied: 403,
    InvitationEnded: 410,
    StoreGone: 503,
    SecretsUnreadable: 409,
    UnknownAttempt: 404,
}


def _refused(_request: Request, error: Exception) -> Response:
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    return JSONResponse(error_body(getattr(error, "field", None), str(error)), status)


def _later(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TryLater)
    return JSONResponse(error_body(None, str(error)), error.status, error.headers)


def _unexpected(_request: Request, error: Exception) -> Response:
    if isinstance(error, StoreGone):  # raised before any route
        return _refused(_request, error)
    message = "Internal error of the dashboard; its log has the details. Stored data is not lost."
    return JSONResponse(error_body(None, message), 500)
