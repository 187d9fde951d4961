"""JSON responses: enumerations as text, NaN and the infinities as strings, because JSON has none of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from db.metrics.curves import to_json_number


def document(value: Any) -> Any:
    """Convert anything the store returns to plain JSON values."""
    if isinstance(value, float):
        return to_json_number(value)
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, BaseModel):
        return document(value.model_dump())
    if is_dataclass(value):
        return {field.name: document(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): document(item) for key, item in value.items()}
    return [document(item) for item in value]


def json_text(value: Any) -> str:
    """Compact JSON text of plain values."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Lone surrogates (a file name of undecodable bytes) cannot be sent as UTF-8: they are shown as "?".
    return text.encode(errors="replace").decode()


def text_of(value: Any) -> str:
    """The JSON text of anything the store returns, as `json_text(document(value))` makes it.

    Several times as fast, because it makes no plain values first; it has to where a number is not finite, or a key
    neither text nor a number."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_one_level)
    except (ValueError, TypeError):
        return json_text(document(value))
    return text.encode(errors="replace").decode()


def _one_level(value: Any) -> Any:
    """Return the parts of a value that json does not know itself; json asks again for those it does not know either."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, BaseModel):
        return value.model_dump()
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    return [*value]


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response with anything the store returns."""
    return Response(text_of(value), status, media_type="application/json", headers=headers)
