"""What can become of a request to the server: few kinds of failure, and which answer means which."""

from __future__ import annotations

from typing import Any

import httpx

NO_CONNECTION = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
NOBODY_BEHIND = (502, 503, 504)
"""With these a proxy says that it does not reach the server either."""


class ServerAway(Exception):
    """No answer that counts: the same request is worth sending again, a little later."""


class RequestFailed(ServerAway):
    """The server was reached, and failed at this request: others may pass meanwhile."""


class AttemptUnknown(RequestFailed):
    """The server's store does not know the attempt, and has not deleted it: it is older, or another one. What trains
    goes on, and what is new is kept here."""


class ServerMistake(RequestFailed):
    """It failed by a mistake of its own, in its own words: the same request may fail for ever."""


class ServerFull(RequestFailed):
    """The server's disk has no room for data now; short reports may still pass."""


class Unauthorized(ServerAway):
    """The server does not know this node (any more): register, then send again."""


class Ended(ServerAway):
    """The node that this worker was was removed, or another worker goes on as it."""


class AttemptSuperseded(Exception):
    """The server has moved on from this attempt; its processes here must end."""


class RequestRefused(Exception):
    """The server will never take this request as it is."""


class TooLarge(RequestRefused):
    """The server, or a proxy on the way to it, takes no body of this size: a smaller one may pass."""


class ChecksumMismatch(RequestRefused):
    """What arrived is not what was offered: the transfer starts again."""


class OffsetMismatch(Exception):
    """The server takes bytes only at the offset it has."""

    def __init__(self, have: int) -> None:
        super().__init__(f"the server has {have} bytes")
        self.have = have


def raise_for(response: httpx.Response, gone: type[Exception], wrong: type[Exception]) -> None:
    """Raise what an error answer means: `gone` for what the server does not know (any more), `wrong` for 422."""
    code, message = response.status_code, _server_message(response)
    if code == 413:  # most often a proxy's own: nginx takes 1 MB unless it is told otherwise
        size_bytes = len(response.request.content)
        raise TooLarge(message or f"a body of {size_bytes:,} bytes was answered 413, and not by the server")
    if code == 416:
        raise OffsetMismatch(_have(response))
    if message is None:  # a proxy, or another program on this port: nothing that training may end for
        kind = ServerAway if code in NOBODY_BEHIND else RequestFailed
        raise kind(f"{response.request.url.path} was answered {code}, and not by the server")
    if code == 401:
        raise Unauthorized(message)
    if code == 410 and response.json()["detail"].get("field") == "node":
        raise Ended(message)
    if code == 404 and response.json()["detail"].get("field") == "store":
        raise AttemptUnknown(message)
    if code in (403, 404, 409, 410):
        raise gone(message)
    if code == 507:
        raise ServerFull(message)
    if code == 500:
        raise ServerMistake(message)
    if code in (408, 425, 429) or code >= 500:
        raise RequestFailed(message)
    raise wrong(message) if code == 422 else RequestRefused(message)


def raise_unless_ours(response: httpx.Response) -> None:
    """Raise RequestFailed for a success that cannot be the server's: a proxy's login page must not pass for it.

    Ours are empty (204) or a JSON object."""
    path = response.request.url.path
    if response.status_code != 204 and not isinstance(json_of(response), dict):
        raise RequestFailed(f"{path}: the answer is no JSON object, so it is not the server's")


def json_of(response: httpx.Response) -> Any:
    """The answer's JSON; None where it is none."""
    try:
        return response.json()
    except ValueError:
        return None


def offset_in(answer: dict[str, Any], first: int, last: int) -> int:
    """The offset an answer names. Raises RequestFailed unless it lies between the two: then it is not the server's."""
    offset = answer.get("offset")
    if type(offset) is not int or not first <= offset <= last:
        raise RequestFailed(f"the answer's offset {str(offset)[:40]} is not within {first}..{last}")
    return offset


def broken_off(error: httpx.HTTPError) -> ServerAway:
    """Without a connection nobody gets through; a conversation that broke off says nothing of the next."""
    kind = ServerAway if isinstance(error, NO_CONNECTION) else RequestFailed
    return kind(str(error) or type(error).__name__)


def _server_message(response: httpx.Response) -> str | None:
    """The sentence of an error in the server's own shape."""
    try:
        return str(response.json()["detail"]["message"])
    except (ValueError, KeyError, TypeError):
        return None


def _have(response: httpx.Response) -> int:
    answer = json_of(response)
    if not isinstance(answer, dict):
        raise RequestFailed("an offset was refused, and not by the server")
    said = answer if "offset" in answer else answer.get("detail")
    return offset_in(said if isinstance(said, dict) else {}, 0, 2**62)
