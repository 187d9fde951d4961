"""Responses that many browsers request repeatedly: compressed once, and 304 while nothing changed."""

from __future__ import annotations

import gzip
import hashlib
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from dashboard.json_responses import text_of


class Tagged(NamedTuple):
    """JSON text, gzipped, and the tag of its content."""

    text: bytes
    tag: str


def tagged(value: Any) -> Tagged:
    """Convert anything the store returns to gzipped JSON and its tag."""
    text = text_of(value).encode()
    return Tagged(gzip.compress(text, 1, mtime=0), hashlib.sha256(text).hexdigest()[:16])


def answer_tagged(request: Request, content: Tagged) -> Response:
    """A response with the content, or 304 when the client already has it."""
    headers = {"ETag": f'"{content.tag}"', "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        encoded = headers | {"Content-Encoding": "gzip"}
        return Response(content.text, media_type="application/json", headers=encoded)
    return Response(gzip.decompress(content.text), media_type="application/json", headers=headers)
