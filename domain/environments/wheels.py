"""The wheels that nodes hand on to those without a way to the index: their names and who is asked for them. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
OFFERED_S = 60.0
"""A node that was asked for a wheel and has not brought it by then is not waited for alone."""
MOST_WANTED = 10_000
"""Further wheels are hopeless: trainings under accounts ask with the tokens of their attempts, and for anything."""
FORGOTTEN_S = 60.0
"""A wheel that nobody has asked for so long is no longer wanted."""
_FILE = re.compile(r"[A-Za-z0-9_.+!-]{1,250}\.(whl|tar\.gz|zip)")


def is_file_name(name: str) -> bool:
    """Whether a name is that of a wheel or source archive, and of nothing else."""
    return _FILE.fullmatch(name) is not None and not name.startswith(".")


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
    """How it stands with the wheels that a node waits for, by their SHA-256."""

    there: list[str] = []
    hopeless: list[str] = []
    """No other node that is connected could fetch them."""


@dataclass
class _Want:
    wheel: WheelFile
    asked_at: float
    by: set[str] = field(default_factory=set)
    offered_to: str = ""
    offered_at: float = float("-inf")
    failed: set[str] = field(default_factory=set)


class Wants:
    """The wheels that nodes wait for, each asked of one other node at a time."""

    def __init__(self) -> None:
        self._wants: dict[str, _Want] = {}

    def __bool__(self) -> bool:
        return bool(self._wants)

    def want(self, node: str, wheels: Collection[WheelFile], online: Collection[str], now: float) -> list[str]:
        """Note what a node waits for; returns the SHA-256 of those that no other online node could fetch."""
        hopeless = []
        for wheel in wheels:
            if wheel.sha256 not in self._wants and len(self._wants) >= MOST_WANTED:
                hopeless.append(wheel.sha256)
                continue
            want = self._wants.setdefault(wheel.sha256, _Want(wheel, now))
            want.asked_at = now
            want.by.add(node)
            if not set(online) - want.by - want.failed:
                hopeless.append(wheel.sha256)
        return hopeless

    def offers(self, node: str, now: float) -> list[WheelFile]:
        """Return what this node is asked to fetch now; each of another node only once that has had its time."""
        chosen = []
        for sha256, want in list(self._wants.items()):  # a copy: other nodes ask in other threads
            if now - want.asked_at >= FORGOTTEN_S:
                self._wants.pop(sha256, None)
                continue
            is_free = now - want.offered_at >= OFFERED_S or want.offered_to in want.failed
            if node not in want.by | want.failed and is_free:
                want.offered_to, want.offered_at = node, now
                chosen.append(want.wheel)
        return chosen

    def failed(self, node: str, sha256: str) -> None:
        """Note that a node could not fetch a wheel: another is asked."""
        if (want := self._wants.get(sha256)) is not None:
            want.failed.add(node)

    def arrived(self, sha256: str) -> None:
        """Forget a wheel that is there."""
        self._wants.pop(sha256, None)
