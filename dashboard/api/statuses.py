"""HTTP statuses for the exceptions of the store."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dashboard.errors import error_body
from db.engine import StoreGone
from db.exceptions import (
    NoSuchAlert,
    NoSuchCheck,
    NoSuchCheckpoint,
    NoSuchNode,
    NoSuchProfile,
    NoSuchProject,
    NoSuchRun,
    NoSuchStudy,
    NoSuchSweep,
    NotOwner,
    Superseded,
    WrongState,
)
from db.identity import UnknownAttempt
from db.nodes.join_tokens import NoSuchToken
from db.nodes.node_reports import IdentityEnded, NameTaken
from db.runs.shared_links import NoSuchLink
from domain.errors import InvalidRequest

STATUS: dict[type[Exception], int] = {
    InvalidRequest: 422,
    NoSuchRun: 404,
    NoSuchProject: 404,
    NoSuchNode: 404,
    NoSuchToken: 404,
    NoSuchLink: 404,
    NoSuchAlert: 404,
    NoSuchCheck: 404,
    NoSuchStudy: 404,
    NoSuchSweep: 404,
    NoSuchCheckpoint: 404,
    NoSuchProfile: 404,
    WrongState: 409,
    Superseded: 409,
    NameTaken: 409,
    IdentityEnded: 410,
    NotOwner: 403,
    StoreGone: 503,
    UnknownAttempt: 404,
}


def install(app: FastAPI) -> None:
    """Register handlers that answer each exception of the store with its status and sentence."""
    for kind in STATUS:
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(Exception, _unexpected)


def _refused(_request: Request, error: Exception) -> Response:
    status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
    return JSONResponse(error_body(getattr(error, "field", None), str(error)), status)


def _unexpected(_request: Request, error: Exception) -> Response:
    if isinstance(error, StoreGone):  # raised before any route
        return _refused(_request, error)
    message = "Internal error of the dashboard; its log has the details. Stored data is not lost."
    return JSONResponse(error_body(None, message), 500)
