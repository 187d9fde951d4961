"""Errors as people read them: one sentence that names the field and the rule."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from sqlalchemy.exc import DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from db.trouble import Trouble, trouble_of
from domain.masking.masking import is_secret_variable


class Rejection(HTTPException):
    """A refused request: an HTTP status, the field it is about, and one sentence."""

    def __init__(self, status: int, message: str, field: str | None = None, **extra: Any) -> None:
        super().__init__(status, message)
        self.field = field
        self.extra = extra


log = logging.getLogger("rankzero")
Body = dict[str, dict[str, str | None]]
_RULES = {
    "missing": "is required",
    "extra_forbidden": "is not a known field",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "finite_number": "must be a finite number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_type": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "list_type": "must be a list",
    "too_short": "must not be empty",
    "too_long": "must have at most {max_length} entries",
    "dict_type": "must be an object",
    "bool_parsing": "must be true or false",
    "literal_error": "must be one of {expected}",
    "enum": "must be one of {expected}",
}
_DEFAULT_MESSAGES = {
    "Not Found": "There is no such address; /api/docs lists the addresses of the API.",
    "Method Not Allowed": "This address does not accept that method; /api/docs lists the methods of each address.",
}


def failure(request: Request, error: Exception) -> Response:
    """The response to one part of a request that failed, as if it had been a request of its own."""
    handlers = request.app.exception_handlers
    for kind in type(error).__mro__:
        if kind is not Exception and (handler := handlers.get(kind)):
            try:
                response: Response = handler(request, error)
                return response
            except Exception:
                break  # not what the handler is for
    log.exception("a part of %s failed", request.url.path, exc_info=error)
    response = handlers[Exception](request, error)
    return response


def error_body(field: str | None, message: str) -> Body:
    """The body of every error response."""
    return {"detail": {"field": field, "message": message}}


def describe(errors: Sequence[Any]) -> tuple[str | None, str]:
    """The field and the sentence for the first of pydantic's errors."""
    if not errors:
        return None, "The request is not valid."
    first_error = errors[0]
    location = [str(p) for p in first_error.get("loc", ()) if p not in ("body", "query", "path")]
    kind, context, value = first_error["type"], first_error.get("ctx") or {}, first_error.get("input")
    if kind == "json_invalid":
        location = []  # it names the byte
        if "surrogate" in str(context.get("error", "")) or "hex escape" in str(context.get("error", "")):
            return None, "The body must be Unicode: it has an unpaired surrogate (\\ud800 to \\udfff)."
    if kind in ("json_invalid", "model_attributes_type", "model_type", "dict_type") and not location:
        return None, "The body must be a JSON object."
    field, subject = location[0] if location else None, ".".join(location) or "The body"
    if kind == "value_error":
        rule = str(context.get("error", first_error["msg"]))
        names_itself = field is None or names_its_subject(rule)
        return field, _sentence(rule if names_itself else f"{subject} {rule}")
    limits = _RuleLimits({name: _round(value) for name, value in context.items()})
    rule = _RULES.get(kind, "").format_map(limits) or _lowered(first_error["msg"])
    is_shown = kind not in (
        "missing",
        "extra_forbidden",
        "string_too_short",
        "too_short",
    ) and not _may_be_secret(location)
    return field, _sentence(f"{subject} {rule}{f', got {_short(value)}' if is_shown else ''}")


def _may_be_secret(location: Sequence[str]) -> bool:
    """Whether a value may be a secret; it is then not repeated, because errors are logged and passed on."""
    return any(name in ("env", "args") or is_secret_variable(name) for name in location)


def names_its_subject(rule: str) -> bool:
    """Whether a rule names its subject itself; one that begins with `must` or `is` needs the field's name."""
    return not rule.startswith(("must", "is "))


def install(app: FastAPI) -> None:
    """Register handlers that give every error of the application the same body."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DBAPIError, _store)
    app.add_exception_handler(PoolTimeout, _busy)
    app.add_exception_handler(OSError, _disk)
    app.add_exception_handler(OverflowError, _too_large)
    app.add_exception_handler(sqlite3.Error, _disk)


def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError | ValidationError)
    return JSONResponse(error_body(*describe(error.errors())), 422)


def _http(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = _DEFAULT_MESSAGES.get(str(error.detail), str(error.detail))
    content = {**error_body(getattr(error, "field", None), message), **getattr(error, "extra", {})}
    return JSONResponse(content, error.status_code, headers=error.headers)


def _store(_request: Request, error: Exception) -> Response:
    assert isinstance(error, DBAPIError)
    if trouble := _trouble_of(_request, error):
        return in_trouble(trouble)
    if isinstance(error, OperationalError) or error.connection_invalidated:
        return _busy(_request, error)
    if isinstance(error, DataError):
        return JSONResponse(error_body(None, "A number is larger than the store can hold."), 422)
    raise error


def _too_large(_request: Request, error: Exception) -> Response:
    """Answer for a number in an address that SQLite cannot hold; numbers in bodies are checked when read."""
    if "SQLite" not in str(error):
        raise error
    return JSONResponse(error_body(None, "A number is larger than the store can hold."), 422)


def _trouble_of(request: Request, error: Exception) -> Trouble | None:
    service = getattr(request.app.state, "service", None)
    return service.store.trouble_of(error) if service is not None else trouble_of(error)


def _busy(_request: Request, _error: Exception) -> Response:
    if trouble := _trouble_of(_request, _error):
        return in_trouble(trouble)
    message = "The store is busy or cannot be reached. Nothing is lost; try again."
    return JSONResponse(error_body(None, message), 503, headers={"Retry-After": "2"})


def _disk(request: Request, error: Exception) -> Response:
    if trouble := _trouble_of(request, error):
        return in_trouble(trouble)
    raise error


def in_trouble(trouble: Trouble) -> Response:
    """The response while nothing can be stored; Retry-After says when to try again."""
    status, pause_s = (507, "5") if trouble is Trouble.FULL else (503, "2")
    return JSONResponse(error_body(None, trouble), status, headers={"Retry-After": pause_s})


class _RuleLimits(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "…"


def _round(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _short(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text[:60] + "…" if len(text) > 60 else text) if isinstance(value, str) else text[:60]


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
