"""Judge the tokens of people who sign in: each wrong one slows the next from its address, and nobody is locked out."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.types import Scope

from dashboard.security.token_files import Credentials

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
