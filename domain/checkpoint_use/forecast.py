"""When the disk for checkpoints is full at the present rate, and what to delete. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.text.formats import size

SOON_S = 24 * 3600.0
"""Below it, pages and `rankzero doctor` warn."""


@dataclass(frozen=True)
class Deletable:
    """A large checkpoint that is neither the latest nor the best, nor pinned or needed."""

    run_id: str
    run: str
    id: int
    name: str
    size_bytes: int
    command: str
    """Deletes it."""


@dataclass(frozen=True)
class StorageForecast:
    """The disk of the server's files."""

    free_bytes: int
    """Beyond the reserve; negative when less is free."""
    bytes_per_s: float
    """Checkpoints and logs that arrive; 0 while no run trains."""
    full_in_s: float | None
    """None: never at this rate."""
    bin_bytes: int
    """What emptying the bin would free."""
    sentence: str
    deletable: list[Deletable]
    """The largest first."""

    @property
    def is_soon(self) -> bool:
        """Whether it is full within a day."""
        return self.full_in_s is not None and self.full_in_s < SOON_S


def forecast(free_bytes: int, bytes_per_s: float, bin_bytes: int, deletable: Sequence[Deletable]) -> StorageForecast:
    """Return when the disk is full at this rate."""
    full_in_s = max(0, free_bytes) / bytes_per_s if bytes_per_s > 0 else None
    sentence = f"{size(max(0, free_bytes))} free"
    if full_in_s is not None:
        sentence += f", full in {_span(full_in_s)} at this rate ({size(round(bytes_per_s * 3600))} an hour)"
    if bin_bytes:
        sentence += f"; {size(bin_bytes)} of deleted checkpoints are still there"
    return StorageForecast(free_bytes, bytes_per_s, full_in_s, bin_bytes, sentence, list(deletable))


def _span(seconds: float) -> str:
    """Return a time in one unit, as far as a forecast is worth it: 40 min, 3 h, 12 days."""
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min"
    if seconds < 2 * SOON_S:
        return f"{round(seconds / 3600)} h"
    days = round(seconds / SOON_S)
    return f"{days} days" if days < 1000 else "years"


HOUR_S = 3600.0


@dataclass(frozen=True)
class Arrivals:
    """What arrived of checkpoints lately: moments and bytes."""

    moments: Sequence[tuple[float, int]]

    def rate(self, now: float) -> float:
        """Return the bytes a second: over the last hour, where nothing came in it over the last day."""
        for window_s in (HOUR_S, SOON_S):
            within = [(at, size_bytes) for at, size_bytes in self.moments if at > now - window_s]
            if within:
                spacing_s = self._spacing(within)
                covered_s = min(window_s, max(now - min(at for at, _ in within) + spacing_s, LEAST_S))
                return sum(size_bytes for _, size_bytes in within) / covered_s
        return 0.0

    @staticmethod
    def _spacing(within: Sequence[tuple[float, int]]) -> float:
        """The usual time before a checkpoint, which the first one took, too."""
        times = sorted({at for at, _ in within})
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0


LEAST_S = 600.0
"""A shorter time says little about a rate."""
