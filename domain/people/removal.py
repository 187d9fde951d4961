"""The fate of a removed person's live runs: they continue, are stopped, or become another person's."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast, get_args

from domain.requests.errors import InvalidRequest

Fate = Literal["keep", "stop", "give"]
"""keep: the runs continue to their end, and stay the removed person's."""


class RunsOfRemoved(NamedTuple):
    """The fate of live runs, and their new owner."""

    fate: Fate = "keep"
    to: str | None = None
    """The person who gets them; None: nobody."""


def parse(text: str) -> RunsOfRemoved:
    """Return the fate written as keep, stop or give:NAME. Raises InvalidRequest."""
    fate, _, name = text.partition(":")
    if fate not in get_args(Fate) or (fate == "give") != bool(name):
        raise InvalidRequest("runs", f"runs must be keep, stop or give:NAME, got {text[:60]!r}.")
    return RunsOfRemoved(cast(Fate, fate), name or None)
