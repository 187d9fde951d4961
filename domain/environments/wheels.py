"""The wheels that nodes hand on to those without a way to the index: their names and who is asked for them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator

from domain.network.ip_addresses import is_of_another_machine

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
OFFERED_S = 60.0
"""A node that was asked for a wheel and has not sent it by then is not waited for alone."""
MOST_WANTED = 10_000
"""Further wheels are hopeless: trainings under accounts ask with the tokens of their attempts, and for anything."""
FORGOTTEN_S = 60.0
"""A wheel not asked for in this time is no longer wanted."""
_NUMERIC = re.compile(r"(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+)){0,3}")
"""Also ways to write an IPv4 address that only resolvers read (127.1, 0x7f000001): none of them is fetched."""
_FILE = re.compile(r"[A-Za-z0-9_.+!-]{1,250}\.(whl|tar\.gz|zip)")


def is_file_name(name: str) -> bool:
    """Whether a name is that of a wheel or source archive, and of nothing else."""
    return _FILE.fullmatch(name) is not None and not name.startswith(".")


def is_fetched(url: str) -> bool:
    """Whether nodes fetch from an address for each other: by http from another machine, as far as the text says.

    What a name leads to is seen where it is resolved."""
    try:
        address = urlsplit(url)
        host = (address.hostname or "").rstrip(".")
    except ValueError:
        return False
    if address.scheme not in ("http", "https") or not host or host == "localhost" or host.endswith(".localhost"):
        return False
    looks_numeric = ":" in host or _NUMERIC.fullmatch(host) is not None
    return not looks_numeric or is_of_another_machine(host)


def is_named(wheel: WheelFile, lock: str) -> bool:
    """Whether the text of a lock has a wheel's address and content."""
    return all(json.dumps(part, ensure_ascii=False) in lock for part in (wheel.url, wheel.sha256))


class WheelFile(BaseModel):
    """A wheel by its name and content, and where the lock says that it lies."""

    model_config = ConfigDict(frozen=True)

    name: str
    sha256: Sha256
    url: Annotated[str, Field(max_length=4096)] = ""

    @field_validator("name")
    @classmethod
    def _names_a_wheel(cls, name: str) -> str:
        if not is_file_name(name):
            raise ValueError("must be the name of a wheel")
        return name


class WantedWheels(BaseModel):
    """The wheels that a node waits for."""

    wheels: Annotated[list[WheelFile], Field(max_length=2000)]


class WheelAnswer(BaseModel):
    """The state of the wheels that a node waits for, by their SHA-256."""

    there: list[str] = []
    hopeless: list[str] = []
    """No other node that is connected could fetch them."""


@dataclass
class _Want:
    asked_at: float
    by: set[str] = field(default_factory=set)
    offered_to: str = ""
    offered_at: float = float("-inf")
    offered: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)


class Wants:
    """The wheels that nodes wait for, each asked of one other node at a time."""

    def __init__(self) -> None:
        self._wants: dict[WheelFile, _Want] = {}

    def __bool__(self) -> bool:
        return bool(self._wants)

    def want(self, node: str, wheels: Collection[WheelFile], online: Collection[str], now: float) -> list[str]:
        """Note what a node waits for; returns the SHA-256 of those that no other online node could fetch."""
        hopeless = []
        for wheel in wheels:
            if not is_fetched(wheel.url) or (wheel not in self._wants and len(self._wants) >= MOST_WANTED):
                hopeless.append(wheel.sha256)
                continue
            want = self._wants.setdefault(wheel, _Want(now))
            want.asked_at = now
            want.by.add(node)
            if not set(online) - want.by - want.failed:
                hopeless.append(wheel.sha256)
        return hopeless

    def offers(self, node: str, now: float) -> list[WheelFile]:
        """Return what this node is asked to fetch now; each of another node only once that has had its time."""
        chosen = []
        for wheel, want in list(self._wants.items()):  # a copy: other nodes ask in other threads
            if now - want.asked_at >= FORGOTTEN_S:
                self._wants.pop(wheel, None)
                continue
            is_free = now - want.offered_at >= OFFERED_S or want.offered_to in want.failed
            if node not in want.by | want.failed and is_free:
                want.offered_to, want.offered_at = node, now
                want.offered.add(node)
                chosen.append(wheel)
        return chosen

    def is_offered(self, node: str, wheel: WheelFile) -> bool:
        """Whether a node was asked for a wheel of this name and content, wherever it fetches it."""
        return any((key.name, key.sha256) == (wheel.name, wheel.sha256) for key in self._offered(node))

    def failed(self, node: str, sha256: str) -> None:
        """Note that a node could not fetch a wheel that it was asked for: another is asked."""
        for wheel in self._offered(node):
            if wheel.sha256 == sha256 and (want := self._wants.get(wheel)) is not None:
                want.failed.add(node)

    def arrived(self, sha256: str) -> None:
        """Forget a wheel that is there."""
        for wheel in [wheel for wheel in list(self._wants) if wheel.sha256 == sha256]:
            self._wants.pop(wheel, None)

    def _offered(self, node: str) -> list[WheelFile]:
        return [wheel for wheel, want in list(self._wants.items()) if node in want.offered]
