"""Name series that several loggers get: equal values are one series, others are named after their logger.

The first logger of a name owns it. A point of another logger is compared with the owner's of the same step, once there
is one; after the first difference the other's series is its own, `LOGGER:NAME`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

EVENT_FILES = "tensorboard"
"""Owns the names that the script writes into event files: those are read from the files."""
MAX_STEPS = 256
CLOSE = 1e-6
"""Relative difference of equal values: event files hold 32 bits."""


class NamedValue(NamedTuple):
    """A value to write under a name."""

    name: str
    step: int
    value: float


class _Series:
    """A name, its owner and the owner's last points."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.last: dict[int, float] = {}
        self.reached = -math.inf
        self.waiting: list[tuple[str, int, float]] = []
        """Points of other loggers whose step the owner has not reached."""
        self.different: set[str] = set()
        """Loggers whose values differ from the owner's."""

    def add(self, step: int, value: float) -> None:
        """Add a point of the owner."""
        self.last[step], self.reached = value, max(self.reached, step)
        if len(self.last) > MAX_STEPS:
            del self.last[next(iter(self.last))]

    def differs(self, logger: str, step: int, value: float) -> bool:
        """Whether another logger's point is not the owner's."""
        if logger not in self.different and not _is_equal(self.last.get(step), value):
            self.different.add(logger)
        return logger in self.different


class Names:
    """The names of one process."""

    def __init__(self) -> None:
        self.has_event_files = False
        self._series: dict[str, _Series] = {}
        self._unclaimed: dict[str, tuple[str, int, float]] = {}
        """Name -> its first point, while event files may still claim the name."""

    def claim(self, step: int, values: Mapping[str, float]) -> list[NamedValue]:
        """Note what an event file gets; return points that waited for it."""
        points: list[NamedValue] = []
        for name, value in values.items():
            waiting = self._unclaimed.pop(name, None)
            points += self._add(name, EVENT_FILES, step, value)
            points += self._add(name, *waiting) if waiting else ()
        return points

    def route(self, logger: str, step: int, values: Mapping[str, float]) -> list[NamedValue]:
        """Return the points to write now that a logger got these values."""
        return [point for name, value in values.items() for point in self._claimed(name, logger, step, value)]

    def remaining(self) -> list[NamedValue]:
        """Return all points that still wait; the process ends."""
        points = [point for name in list(self._unclaimed) for point in self._release(name)]
        for name, series in self._series.items():
            points += [NamedValue(f"{logger}:{name}", step, value) for logger, step, value in series.waiting]
            series.waiting.clear()
        return points

    def _claimed(self, name: str, logger: str, step: int, value: float) -> Iterator[NamedValue]:
        """Yield points once it is clear who owns the name: after a second step, no event file will claim it."""
        if self.has_event_files and name not in self._series:
            first = self._unclaimed.setdefault(name, (logger, step, value))
            if first == (logger, step, value):
                return
            yield from self._release(name)
        yield from self._add(name, logger, step, value)

    def _release(self, name: str) -> list[NamedValue]:
        return self._add(name, *self._unclaimed.pop(name))

    def _add(self, name: str, logger: str, step: int, value: float) -> list[NamedValue]:
        series = self._series.setdefault(name, _Series(logger))
        if logger == series.owner:
            series.add(step, value)
            own = [] if logger == EVENT_FILES else [NamedValue(name, step, value)]
            return own + list(_compared(name, series))
        series.waiting.append((logger, step, value))
        return list(_compared(name, series))


def _compared(name: str, series: _Series) -> Iterator[NamedValue]:
    """Yield the waiting points that differ from the owner's; those that agree are dropped."""
    still_waiting = []
    for logger, step, value in series.waiting:
        if step > series.reached and logger not in series.different:
            still_waiting.append((logger, step, value))
        elif series.differs(logger, step, value):
            yield NamedValue(f"{logger}:{name}", step, value)
    series.waiting = still_waiting


def _is_equal(own: float | None, value: float) -> bool:
    if own is None or own == value:
        return own is not None
    return (math.isnan(own) and math.isnan(value)) or math.isclose(own, value, rel_tol=CLOSE)
