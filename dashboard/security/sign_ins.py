"""Sign-ins and sign-outs: each wrong token slows the next from its address, and ended sessions are rejected."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.private_files import write_private
from dashboard.security.token_files import COOKIE_LIFETIME_S, Credentials


class SignIns:
    """All tries to sign in to one dashboard, by the form or by an address with a token; used inside the event loop."""

    def __init__(self, credentials: Credentials, now: Callable[[], float], sleep: Sleep = asyncio.sleep) -> None:
        self._credentials, self._now, self._sleep = credentials, now, sleep
        self._failures = Failures()
        self._by_address: OrderedDict[str, _Tries] = OrderedDict()

    async def is_right(self, token: bytes, scope: Scope) -> bool:
        """Whether this is the login token, after the delay that the sender's address has earned.

        A right token waits too: otherwise its answer would be told by its speed. Raises TooManyTries."""
        tries = self._tries(_address(scope))
        if tries.waiting >= MOST_WAITING:
            raise TooManyTries
        tries.waiting += 1
        try:
            async with tries.turn:
                await self._sleep(delay_s(tries.wrong))
                return self._judge(token, tries)
        finally:
            tries.waiting -= 1

    def _judge(self, token: bytes, tries: _Tries) -> bool:
        if self._credentials.is_user(token):
            tries.wrong = 0
            return True
        tries.wrong, tries.last_wrong_at = tries.wrong + 1, self._now()
        self._failures.count(self._now())
        return False

    def _tries(self, address: str) -> _Tries:
        tries = self._by_address.setdefault(address, _Tries())
        self._by_address.move_to_end(address)
        if len(self._by_address) > MOST_ADDRESSES:
            self._by_address.popitem(last=False)
        if self._now() - tries.last_wrong_at > FORGOTTEN_AFTER_S:
            tries.wrong = 0
        return tries


log = logging.getLogger("rankzero")
LOG_EVERY_S = 60.0
FREE_TRIES = 3
"""Wrong tokens after which the next one waits."""
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 10.0
FORGOTTEN_AFTER_S = 900.0
"""Seconds without a wrong token after which an address is as good as any other."""
MOST_WAITING = 8
"""Tries of one address that wait at the same time; more are answered at once, with a request to try later."""
MOST_ADDRESSES = 10_000
Sleep = Callable[[float], Awaitable[object]]


class TooManyTries(Exception):
    """So many tries of this address wait already that this one is not judged."""


class Failures:
    """Counts wrong tokens and logs them at most once a minute."""

    def __init__(self, message: str = "%d sign-ins with a wrong token") -> None:
        self._message = message
        self._count = 0
        self._logged_at = float("-inf")

    def count(self, now: float) -> None:
        """Count one wrong token."""
        self._count += 1
        if now - self._logged_at >= LOG_EVERY_S:
            log.warning(self._message, self._count)
            self._count, self._logged_at = 0, now


@dataclass
class _Tries:
    """The tries of one address: judged one after another."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    wrong: int = 0
    last_wrong_at: float = 0.0
    waiting: int = 0


def delay_s(wrong: int) -> float:
    """Return the seconds that the next try of an address waits after so many wrong ones."""
    late = wrong - FREE_TRIES
    return 0.0 if late < 0 else min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(late, 10))


def _address(scope: Scope) -> str:
    """The address of the sender; of IPv6 its network, of which one person has all addresses."""
    host = str((scope.get("client") or ("",))[0]).partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


# Signed-out browser sessions: their cookies are rejected, their WebSockets are closed.

SIGNED_OUT = 1008
"""The WebSocket close code: a policy was violated."""


class Sessions:
    """The signed-out sessions, stored in a file so that a restart does not revive them."""

    def __init__(self, path: Path, now: float) -> None:
        self._path = path
        self._ended = {name: until for name, until in _read(path) if until > now}
        self._open: dict[str, set[asyncio.Event]] = {}

    def is_ended(self, cookie: str) -> bool:
        """Whether this session was signed out."""
        return bool(self._ended) and _name(cookie) in self._ended

    def end(self, cookie: str, now: float) -> None:
        """Sign the session out for good, and close all its WebSockets. Inside the event loop only."""
        name = _name(cookie)
        self._ended = {session: until for session, until in self._ended.items() if until > now}
        self._ended[name] = now + COOKIE_LIFETIME_S
        with suppress(OSError):  # a full disk must not keep anybody signed in
            lines = (f"{session} {until:.0f}\n" for session, until in self._ended.items())
            write_private(self._path, "".join(lines))
        for event in self._open.get(name, ()):
            event.set()

    async def keep_open(self, cookie: str, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a WebSocket until the session ends; the application then sees a disconnect."""
        ended = asyncio.Event()
        name = _name(cookie)
        self._open.setdefault(name, set()).add(ended)
        try:
            connection = _Connection(ended, receive, send)
            await app(scope, connection.receive, connection.send)
        finally:
            self._open[name].discard(ended)
            if not self._open[name]:
                del self._open[name]


class _Connection:
    """A WebSocket that appears closed by the browser as soon as its session has ended."""

    def __init__(self, ended: asyncio.Event, receive: Receive, send: Send) -> None:
        self._ended, self._receive, self._send = ended, receive, send
        self._is_closed = False

    async def receive(self) -> Message:
        """The browser's next message, or a disconnect after the session's end."""
        reading = asyncio.ensure_future(self._receive())
        waiting = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
        finally:
            for task in (reading, waiting):
                task.cancel()
        self._is_closed = True
        with suppress(RuntimeError):  # the browser was faster
            await self._send({"type": "websocket.close", "code": SIGNED_OUT, "reason": "signed out"})
        return {"type": "websocket.disconnect", "code": SIGNED_OUT}

    async def send(self, message: Message) -> None:
        """Send the message unless the session has ended."""
        if not self._is_closed:
            await self._send(message)


def _name(cookie: str) -> str:
    """The session's name in the file: a hash, so that nobody can sign in with it."""
    return hashlib.sha256(b"ended session " + cookie.encode(errors="replace")).hexdigest()


def _read(path: Path) -> list[tuple[str, float]]:
    try:
        lines = [line.split() for line in path.read_text(errors="replace").splitlines()]
    except FileNotFoundError:
        return []
    return [(line[0], float(line[1])) for line in lines if len(line) == 2 and line[1].isdecimal()]
