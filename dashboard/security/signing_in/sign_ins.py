"""Tries to sign in: each wrong one slows the next from its address, and the next for its account."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.types import Scope

from dashboard.security.keys.token_files import Credentials

T = TypeVar("T")


class SignIns:
    """All tries to sign in to one dashboard, by a form or an address with a token; used inside the event loop."""

    def __init__(self, credentials: Credentials, now: Callable[[], float], sleep: Sleep = asyncio.sleep) -> None:
        self._credentials, self._now, self._sleep = credentials, now, sleep
        self._failures = Failures()
        self._by_address: OrderedDict[str, _Tries] = OrderedDict()
        self._by_account: OrderedDict[str, _Tries] = OrderedDict()

    async def is_right(self, token: bytes, scope: Scope) -> bool:
        """Whether this is the login token, after the delay that its sender has earned. Raises TooManyTries."""

        async def judge() -> bool | None:
            return self._credentials.is_user(token) or None

        return await self.in_turn(judge, scope) is not None

    async def in_turn(self, judge: Callable[[], Awaitable[T | None]], scope: Scope, account: str = "") -> T | None:
        """The answer of `judge`, after the delays that the address and the account, which may not exist, have earned.

        A right try waits too: otherwise its answer would be told by its speed. Raises TooManyTries."""
        address = sender_of(scope)
        counted = self._counted(address, account)
        if any(tries.waiting >= MOST_WAITING for tries in counted):
            raise TooManyTries
        for tries in counted:
            tries.waiting += 1
        try:
            async with AsyncExitStack() as turns:
                for tries in counted:
                    await turns.enter_async_context(tries.turn)
                await self._sleep(max(delay_s(tries.wrong) for tries in counted))
                answer = await judge()
                self._count(answer is not None, address, account, counted)
                return answer
        finally:
            for tries in counted:
                tries.waiting -= 1

    def next_delay_s(self, scope: Scope, account: str = "") -> float:
        """Return the seconds that the next try of this sender, for this account, waits."""
        return max(delay_s(tries.wrong) for tries in self._counted(sender_of(scope), account))

    def _counted(self, address: str, account: str) -> list[_Tries]:
        """The tries that slow this one: where the person has signed in before, only those for the account from there.

        Beside those of the address, which whoever shares it makes good by signing in to an account of their own."""
        by_address = self._tries(self._by_address, address)
        if not account:
            return [by_address]
        by_account = self._tries(self._by_account, _hashed(account))
        if address in by_account.own_addresses:
            by_account = self._tries(self._by_account, _hashed(f"{account} {address}"))
        return [by_address, by_account]

    def _count(self, is_right: bool, address: str, account: str, counted: list[_Tries]) -> None:
        if is_right:
            counted[0].wrong = 0
            if account:
                self._tries(self._by_account, _hashed(account)).own_addresses.add(address)
            return
        for tries in counted:
            tries.wrong, tries.last_wrong_at = tries.wrong + 1, self._now()
        self._failures.count(self._now())

    def _tries(self, tries_of: OrderedDict[str, _Tries], name: str) -> _Tries:
        tries = tries_of.setdefault(name, _Tries())
        tries_of.move_to_end(name)
        if len(tries_of) > MOST_ADDRESSES:
            tries_of.popitem(last=False)
        if self._now() - tries.last_wrong_at > FORGOTTEN_AFTER_S:
            tries.wrong = 0
        return tries


log = logging.getLogger("rankzero")
LOG_EVERY_S = 60.0
FREE_TRIES = 3
"""Wrong tries after which the next one waits."""
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 10.0
FORGOTTEN_AFTER_S = 900.0
"""Seconds without a wrong try after which an address or account is as good as any other."""
MOST_WAITING = 8
"""Tries of one address or account that wait at the same time; more are asked at once to try later."""
MOST_ADDRESSES = 10_000
Sleep = Callable[[float], Awaitable[object]]


class TooManyTries(Exception):
    """So many tries of this address or account wait already that this one is not judged."""


class Failures:
    """Counts wrong tries and logs them at most once a minute."""

    def __init__(self, message: str = "%d sign-ins with a wrong token or password") -> None:
        self._message = message
        self._count = 0
        self._logged_at = float("-inf")

    def count(self, now: float) -> None:
        """Count one wrong try."""
        self._count += 1
        if now - self._logged_at >= LOG_EVERY_S:
            log.warning(self._message, self._count)
            self._count, self._logged_at = 0, now


@dataclass
class _Tries:
    """The tries of one address or account: judged one after another."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    wrong: int = 0
    last_wrong_at: float = 0.0
    waiting: int = 0
    own_addresses: set[str] = field(default_factory=set)
    """Where a person has signed in from since the start: strangers' tries do not keep them out there."""


def delay_s(wrong: int) -> float:
    """Return the seconds that the next try waits after so many wrong ones."""
    late = wrong - FREE_TRIES
    return 0.0 if late < 0 else min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(late, 10))


def sender_of(scope: Scope) -> str:
    """The address of the sender; of IPv6 its network, of which one person has all addresses."""
    host = str((scope.get("client") or ("",))[0]).partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _hashed(account: str) -> str:
    """The key of an account, of one length whatever was typed."""
    return hashlib.sha256(account.encode(errors="replace")).hexdigest()
