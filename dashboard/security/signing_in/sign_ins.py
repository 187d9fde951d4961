"""Tries to sign in: each wrong one slows the next from its address, and the next for its account."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.types import Scope

from dashboard.security.keys.token_files import Credentials
from dashboard.security.limits import TryLater
from dashboard.security.signing_in.known_addresses import KnownAddresses
from dashboard.security.turns import Rank, Standing
from domain.clock import SYSTEM_CLOCK
from domain.people.rights import OWNER

Judge = Callable[[Rank], Awaitable[str | None]]
"""Says who signs in, None for a wrong secret; what costs much waits for a turn by the rank."""


class SignIns:
    """All tries to sign in to one dashboard, by a form or an address with a token; used inside the event loop."""

    def __init__(
        self,
        credentials: Credentials,
        known_addresses: KnownAddresses,
        now: Callable[[], float],
        sleep: Sleep = SYSTEM_CLOCK.sleep,
    ) -> None:
        self._credentials, self._known_addresses, self._now, self._sleep = credentials, known_addresses, now, sleep
        self._failures = Failures()
        self._by_address: OrderedDict[str, _Tries] = OrderedDict()
        self._by_account: OrderedDict[str, _Tries] = OrderedDict()

    async def is_right(self, token: bytes, scope: Scope) -> bool:
        """Whether this is the login token, after the delay that its sender has earned. Raises TooManyTries."""

        async def judge(_rank: Rank) -> str | None:
            return OWNER if self._credentials.is_user(token) else None

        return await self.in_turn(judge, scope) is not None

    async def in_turn(self, judge: Judge, scope: Scope, account: str = "") -> str | None:
        """The answer of `judge`, after the delays that the address and the account, which may not exist, have earned.

        A right try waits too: otherwise its answer would be told by its speed. Tries of one address are judged one
        after another; those for one account are not, or strangers could keep its person waiting.

        Raises TooManyTries, and what `judge` raises."""
        address = sender_of(scope)
        by_address = self._asking(address)
        if by_address.waiting >= MOST_WAITING:
            raise TooManyTries
        by_address.waiting += 1
        try:
            async with by_address.turn:
                counted = [by_address, *await self._of_account(address, account)]
                await self._sleep(max(delay_s(tries.wrong) for tries in counted))
                person = await judge(await self._rank(address, by_address))
                self._count(person, address, counted)
                return person
        finally:
            by_address.waiting -= 1

    async def rank_of(self, scope: Scope) -> Rank:
        """The place in a queue of a request that somebody else judges, as a provider does; it counts as a try."""
        address = sender_of(scope)
        return await self._rank(address, self._asking(address))

    def signed_in(self, scope: Scope, person: str) -> None:
        """Note that somebody else's judgement let this person in: their address is as good as after a right try."""
        address = sender_of(scope)
        self._count(person, address, [self._tries(self._by_address, address)])

    def _asking(self, address: str) -> _Tries:
        tries = self._tries(self._by_address, address)
        tries.requests, tries.last_at = tries.requests + 1, self._now()
        return tries

    async def _rank(self, address: str, tries: _Tries) -> Rank:
        standing = Standing.KNOWN if await self._known_addresses.has(address) else Standing.STRANGER
        return Rank(standing, tries.requests)

    async def next_delay_s(self, scope: Scope, account: str = "") -> float:
        """Return the seconds that the next try of this sender, for this account, waits."""
        address = sender_of(scope)
        counted = [self._tries(self._by_address, address), *await self._of_account(address, account)]
        return max(delay_s(tries.wrong) for tries in counted)

    async def _of_account(self, address: str, account: str) -> list[_Tries]:
        """The tries for an account that slow this one: those from there alone where its person has signed in before.

        They count beside those of the address, which anybody there resets by signing in to their own account."""
        if not account:
            return []
        is_own = await self._known_addresses.has_for(address, account)
        return [self._tries(self._by_account, _hashed(f"{account} {address}" if is_own else account))]

    def _count(self, person: str | None, address: str, counted: list[_Tries]) -> None:
        if person is not None:
            counted[0].wrong = counted[0].requests = 0
            self._known_addresses.note(address, person)
            return
        for tries in counted:
            tries.wrong, tries.last_at = tries.wrong + 1, self._now()
        self._failures.count(self._now())

    def _tries(self, tries_of: OrderedDict[str, _Tries], name: str) -> _Tries:
        tries = tries_of.setdefault(name, _Tries())
        tries_of.move_to_end(name)
        if len(tries_of) > MOST_ADDRESSES:
            tries_of.popitem(last=False)
        if self._now() - tries.last_at > FORGOTTEN_AFTER_S:
            tries.wrong = tries.requests = 0
        return tries


log = logging.getLogger("rankzero")
LOG_EVERY_S = 60.0
FREE_TRIES = 3
"""Wrong tries after which the next one waits."""
FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 10.0
FORGOTTEN_AFTER_S = 900.0
"""Seconds without a try after which an address or account is as good as any other."""
MOST_WAITING = 8
"""Tries of one address that wait at the same time; more are asked at once to try later."""
MOST_ADDRESSES = 10_000
Sleep = Callable[[float], Awaitable[object]]


class TooManyTries(TryLater):
    """So many tries of this address wait already that this one is not judged."""

    retry_after_s = LONGEST_DELAY_S

    def __init__(self) -> None:
        super().__init__("Too many tries from your address wait already: wait a minute, then try again.")


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
    """The tries of one address or account; those of an address are judged one after another."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    wrong: int = 0
    last_at: float = 0.0
    requests: int = 0
    """Tries since the last right one, those that were not judged too."""
    waiting: int = 0


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
