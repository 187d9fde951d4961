"""Lists and counts in words."""

from __future__ import annotations

from collections.abc import Iterable

MOST_NAMED = 3
"""Nodes named one by one in a sentence; of more it says how many."""


def listed(words: Iterable[str], most: int = MOST_NAMED) -> str:
    """a, b and 5 more"""
    named = list(words)
    if len(named) > most:
        named = [*named[:most], f"{len(named) - most} more"]
    return f"{', '.join(named[:-1])} and {named[-1]}" if len(named) > 1 else "".join(named)


def counted(number: int, what: str) -> str:
    """1 GPU, 2 GPUs"""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
