"""What a proxy in front of the dashboard says of a request: believed from listed addresses, removed otherwise."""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.ip_addresses import parse_address, parse_network


class TrustedProxies:
    """The listed addresses and networks; with none listed, no peer is trusted, this machine's neither."""

    def __init__(self, listed: Sequence[str] = (), secret: str = "") -> None:
        """Raises ValueError for what is neither an address nor a network, and for a network of everybody.

        `secret`: what a listed proxy must send beside the other headers; without it, everybody is believed who can
        connect from a listed address."""
        self._networks = tuple(parse_network(text) for text in listed)
        self._secret = secret.encode()

    def believes(self, scope: Scope) -> bool:
        """Whether this request comes from a listed proxy, which knows the secret."""
        peer = (scope.get("client") or ("",))[0]
        sent = b",".join(value for name, value in scope["headers"] if name == SECRET_HEADER)
        return self.is_trusted(peer) and (not self._secret or hmac.compare_digest(sent, self._secret))

    def is_trusted(self, peer_address: str) -> bool:
        """Whether this address, which a connection comes from, is listed."""
        address = parse_address(peer_address)
        return address is not None and any(address in network for network in self._networks)

    def client_address(self, peer_address: str, forwarded_for: Sequence[str]) -> str:
        """The address of the client, from the peer's and the values of X-Forwarded-For.

        Each proxy adds at the end the address that it was connected from. So the last one that is not a listed
        proxy's is the client's; what stands before it was written by that client, or by nobody we know."""
        client = peer_address
        for entry in reversed(",".join(forwarded_for).split(",")):
            address = parse_address(_without_port(entry.strip()))
            if address is None or not self.is_trusted(client):
                break
            client = str(address)
        return client


_WITH_PORT = re.compile(r"\[([^\]]*)\](?::\d{1,5})?|([^:]*):\d{1,5}")


def _without_port(entry: str) -> str:
    match = _WITH_PORT.fullmatch(entry)
    return (match[1] or match[2]) if match else entry


class ForwardedHeaders:
    """Sets scheme and client of a request as a listed proxy has it, and removes all such headers of other senders."""

    def __init__(self, app: ASGIApp, proxies: TrustedProxies, user_header: str | None = None) -> None:
        """`user_header` is the header in which proxies name the signed-in person."""
        self.app, self._proxies = app, proxies
        self._others = (*_OTHER_HEADERS, (user_header or "forwarded").lower().encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its scope changed."""
        if scope["type"] in ("http", "websocket"):
            is_believed = self._proxies.believes(scope)
            if is_believed:
                self._believe(scope, *scope["client"])
            headers = (pair for pair in scope["headers"] if pair[0] != SECRET_HEADER)
            scope["headers"] = [pair for pair in headers if is_believed or not self._is_of_proxy(pair[0])]
        await self.app(scope, receive, send)

    def _is_of_proxy(self, name: bytes) -> bool:
        return name.startswith(b"x-forwarded-") or name in self._others

    def _believe(self, scope: Scope, peer: str, port: int) -> None:
        client = self._proxies.client_address(peer, _values(scope, b"x-forwarded-for"))
        scope["client"] = (client, port if client == peer else 0)
        schemes = ",".join(_values(scope, b"x-forwarded-proto")).split(",")
        is_websocket = scope["type"] == "websocket"
        if (scheme := _SCHEMES.get(schemes[-1].strip().lower())) is not None:
            scope["scheme"] = scheme.replace("http", "ws") if is_websocket else scheme


_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}
SECRET_HEADER = b"x-forwarded-secret"
_OTHER_HEADERS = (b"forwarded", b"x-real-ip")


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for header, value in scope["headers"] if header == name]


# The address of the dashboard as the client of a request has it.


def is_https(scope: Scope) -> bool:
    """Whether the client speaks TLS, with us or with a listed proxy."""
    return scope.get("scheme") in ("https", "wss")


def shown_url(request: HTTPConnection) -> str:
    """The address that the client used to reach the dashboard, without a slash at its end."""
    return f"{'https' if is_https(request.scope) else 'http'}://{request.headers['host']}"


class Origins:
    """Which pages are the dashboard's own, by the Origin that browsers send; one of another scheme is not."""

    def __init__(self, public_url: str | None = None) -> None:
        """`public_url` is what people open, where a proxy speaks TLS that is not listed."""
        self._public = _origin_of(public_url or "")

    def is_own(self, origin: str, request: HTTPConnection) -> bool:
        """Whether this is the origin of the address to which the request was sent."""
        own, sent = _origin_of(shown_url(request)), _origin_of(origin)
        is_public = self._public is not None and own is not None and self._public[1] == own[1]
        return sent is not None and (sent == own or (is_public and sent == self._public))


def _origin_of(url: str) -> tuple[str, str] | None:
    """The scheme, and the host with its port unless that is the scheme's own; None where there are none."""
    try:
        parts = urlsplit(url.lower())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or parts.hostname is None:
        return None
    return parts.scheme, parts.hostname if port in (None, _PORTS[parts.scheme]) else f"{parts.hostname}:{port}"


_PORTS = {"http": 80, "https": 443}
