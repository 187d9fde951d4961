"""The exceptions of requests to the server, and the answers that raise them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2

from domain.network.trust import why_no_tls

NO_CONNECTION = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
GATEWAY_ERRORS = (502, 503, 504)
"""Sent by a proxy that cannot reach the server."""


class ServerAway(Exception):
    """The server gave no usable answer: retry the request later."""


class RequestFailed(ServerAway):
    """The server was reached but failed at this request; other requests may succeed."""


class AttemptUnknown(RequestFailed):
    """The server's store does not know the attempt and has not deleted it: the store is older, or another one. Training
    continues, and new data stays on this node."""


class ServerMistake(RequestFailed):
    """The server failed with an internal error: the same request may always fail."""


class ServerFull(RequestFailed):
    """The server's disk is full; short reports may still succeed."""


class Unauthorized(ServerAway):
    """The server does not know this node: register, then retry."""


class Ended(ServerAway):
    """This worker's node was removed, or another worker has taken it over."""


class AttemptSuperseded(Exception):
    """A newer attempt has replaced this one; its processes on this node must end."""


class RequestRefused(Exception):
    """The server rejects this request; retrying it unchanged is useless."""


class TooLarge(RequestRefused):
    """The server or a proxy rejects a body of this size; a smaller one may pass."""


class ChecksumMismatch(RequestRefused):
    """The received data does not match its SHA-256: the transfer starts again."""


class OffsetMismatch(Exception):
    """The server accepts bytes only at its current offset, `have`."""

    def __init__(self, have: int) -> None:
        super().__init__(f"the server has {have} bytes")
        self.have = have


OF_THE_SERVER = (ServerAway, AttemptSuperseded, RequestRefused, OffsetMismatch)
"""All that a request raises: none of it says anything of the file whose data is sent."""


def raise_for(response: httpx2.Response, conflict_error: type[Exception], invalid_error: type[Exception]) -> None:
    """Raise the exception for an error answer: `conflict_error` for 403, 404, 409 and 410, `invalid_error` for 422."""
    code, message = response.status_code, _server_message(response)
    if code == 413:  # most often from a proxy: nginx accepts 1 MB by default
        size_bytes = int(response.request.headers.get("content-length", 0))
        raise TooLarge(message or f"a body of {size_bytes:,} bytes was answered 413, and not by the server")
    if code == 416:
        raise OffsetMismatch(_server_offset(response))
    if message is None:  # a proxy, or another program on this port: no reason to end a training
        kind = ServerAway if code in GATEWAY_ERRORS else RequestFailed
        raise kind(f"{response.request.url.path} was answered {code}, and not by the server")
    if code == 401:
        raise Unauthorized(message)
    if code == 410 and response.json()["detail"].get("field") == "node":
        raise Ended(message)
    if code == 404 and response.json()["detail"].get("field") == "store":
        raise AttemptUnknown(message)
    if code in (403, 404, 409, 410):
        raise conflict_error(message)
    if code == 507:
        raise ServerFull(message)
    if code == 500:
        raise ServerMistake(message)
    if code in (408, 425, 429) or code >= 500:
        raise RequestFailed(message)
    raise invalid_error(message) if code == 422 else RequestRefused(message)


def raise_unless_ours(response: httpx2.Response) -> None:
    """Reject a success that cannot be the server's, such as a proxy's login page or an empty answer of its own.

    The server's answers are JSON objects. Raises RequestFailed."""
    path = response.request.url.path
    if not isinstance(json_of(response), dict):
        raise RequestFailed(f"{path}: the answer is not a JSON object, so it did not come from the server")


def require(identity: Mapping[str, object], answer: Mapping[str, Any], path: str) -> None:
    """Raise RequestFailed unless the answer is about what was sent: otherwise it may not be stored."""
    if other := [name for name, value in identity.items() if answer.get(name) != value]:
        raise RequestFailed(f"{path}: the answer has another {other[0]}, so it did not come from the server")


def json_of(response: httpx2.Response) -> Any:
    """The answer's JSON document; None if it is not JSON."""
    try:
        return response.json()
    except ValueError:
        return None


def offset_in(answer: dict[str, Any], first: int, last: int) -> int:
    """The offset in an answer. Raises RequestFailed unless it lies in first..last."""
    offset = answer.get("offset")
    if type(offset) is not int or not first <= offset <= last:
        raise RequestFailed(f"the answer's offset {str(offset)[:40]} is not within {first}..{last}")
    return offset


def broken_off(error: httpx2.HTTPError, url: str) -> ServerAway:
    """ServerAway if no connection was made; RequestFailed if an established connection broke off."""
    kind = ServerAway if isinstance(error, NO_CONNECTION) else RequestFailed
    return kind(why_no_tls(error, url) or str(error) or type(error).__name__)


def _server_message(response: httpx2.Response) -> str | None:
    """The message of an error in the server's own format; None for other formats."""
    try:
        return str(response.json()["detail"]["message"])
    except (ValueError, KeyError, TypeError):
        return None


def _server_offset(response: httpx2.Response) -> int:
    answer = json_of(response)
    if not isinstance(answer, dict):
        raise RequestFailed("an offset was refused, and not by the server")
    detail = answer if "offset" in answer else answer.get("detail")
    return offset_in(detail if isinstance(detail, dict) else {}, 0, 2**62)
