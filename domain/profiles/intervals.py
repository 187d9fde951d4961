"""Arithmetic of time intervals, each a pair (begin, end)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals that cover the same times, in order."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > begin:
            merged.append((begin, end))
    return merged


def length(disjoint: Sequence[Interval]) -> float:
    """Return the time that disjoint intervals cover."""
    return sum(end - begin for begin, end in disjoint)


def overlap(first: Sequence[Interval], second: Sequence[Interval]) -> float:
    """Return the time that both cover; each is disjoint and in order."""
    shared, at = 0.0, 0
    for begin, end in first:
        while at < len(second) and second[at][1] <= begin:
            at += 1
        following = at
        while following < len(second) and second[following][0] < end:
            shared += min(end, second[following][1]) - max(begin, second[following][0])
            following += 1
    return shared


def between(disjoint: Sequence[Interval]) -> list[float]:
    """Return the times from the end of each interval to the begin of the next."""
    return [after[0] - before[1] for before, after in pairwise(disjoint)]
