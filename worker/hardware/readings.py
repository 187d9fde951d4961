"""Readings of one moment, and rates from counters that only grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Readings:
    """Values by name, and what happened since the last readings: a sentence and its number (an Xid, a count)."""

    values: dict[str, float] = field(default_factory=dict)
    events: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, value: float | None) -> None:
        """Add a value, unless it could not be read."""
        if value is not None:
            self.values[name] = float(value)

    def under(self, prefix: str) -> Readings:
        """These readings with `prefix/` before each value's name, and `prefix: ` before each event."""
        return Readings(
            {f"{prefix}/{name}": value for name, value in self.values.items()},
            {f"{prefix}: {text}": value for text, value in self.events.items()},
        )

    def update(self, more: Readings) -> None:
        """Take over the values and events of others."""
        self.values.update(more.values)
        self.events.update(more.events)


class Counters:
    """The last values of counters that only grow."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def rates(self, at: float, counters: Mapping[str, float]) -> dict[str, float]:
        """Growth per second since the last call by name; none for a new or restarted counter."""
        rates = {}
        for name, value in counters.items():
            last_at, last = self._last.get(name, (at, value))
            if at > last_at and value >= last:
                rates[name] = (value - last) / (at - last_at)
            self._last[name] = (at, value)
        return rates

    def growth(self, name: str, value: float) -> float:
        """Growth since the last call; 0 for a new or restarted counter."""
        _, last = self._last.get(name, (0.0, value))
        self._last[name] = (0.0, value)
        return max(0.0, value - last)
