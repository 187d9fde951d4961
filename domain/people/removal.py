"""What becomes of the live runs of a person who is removed: they go on, are stopped, or are given to another one."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast, get_args

from domain.requests.errors import InvalidRequest

Fate = Literal["keep", "stop", "give"]
"""keep: they go on to their end, as theirs."""


class RunsOfRemoved(NamedTuple):
    """The fate of live runs, and whose they are then."""

    fate: Fate = "keep"
    to: str | None = None
    """To whom they are given; None: to nobody."""


def parse(text: str) -> RunsOfRemoved:
    """The fate that is written keep, stop or give:NAME. Raises InvalidRequest."""
    word, _, name = text.partition(":")
    if word not in get_args(Fate) or (word == "give") != bool(name):
        raise InvalidRequest("runs", f"runs must be keep, stop or give:NAME, got {text[:60]!r}.")
    return RunsOfRemoved(cast(Fate, word), name or None)
