"""How far an attempt is in its epochs, and when the last one ends, from the epochs that its script tells. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from domain.scheduling.throughput import total_ahead


class EpochCurve(Protocol):
    """The series of epochs: logged or printed, once for each or with every step."""

    @property
    def finite_count(self) -> int: ...
    @property
    def first_wall(self) -> float: ...
    @property
    def last_wall(self) -> float: ...
    @property
    def last_value(self) -> float: ...
    @property
    def lowest(self) -> float | None: ...
    @property
    def finite_sum(self) -> float: ...


class Epochs(NamedTuple):
    """An attempt's place in its epochs."""

    current: float
    """The epoch it is in, counted from 1; as it is logged where that is a fraction."""
    total: int
    ended: float
    """Number of epochs that had ended at `at`."""
    at: float
    epoch_s: float | None
    """Mean duration of an epoch in seconds; None until it is known."""

    @property
    def share(self) -> float:
        """The share of all epochs that have ended, 0 to 1."""
        return min(1.0, self.ended / self.total)

    def left_s(self, now: float) -> float | None:
        """Seconds from `now` to the end; None while that is unknown."""
        return None if self.epoch_s is None else max(0.0, self.at + (self.total - self.ended) * self.epoch_s - now)


def epochs_of(
    curve: EpochCurve | None, losses: int, totals: Iterable[int | None], started_at: float | None = None
) -> Epochs | None:
    """The attempt's place; None where no epoch or none of the `totals`, the first that can be, is known.

    `losses`: number of points of its loss. Where it has more of them than epochs, an epoch is told when it begins.
    The time since `started_at` counts as that of an epoch while the first is the only one."""
    if curve is None or curve.lowest is None or not curve.lowest <= curve.last_value:
        return None
    passed, is_fraction = curve.last_value - curve.lowest, _has_fractions(curve)
    from_zero = curve.lowest < 1
    current = curve.last_value + (from_zero and not is_fraction)
    total = total_ahead(_inclusive(totals, curve.last_value, from_zero and not is_fraction), current)
    if total is None:
        return None
    is_at_end = is_fraction or (curve.finite_count <= passed + 1 and losses <= curve.finite_count)
    ended = current if is_at_end else current - 1
    epoch_s = (curve.last_wall - curve.first_wall) / passed if passed > 0 else None
    if passed == 0 and ended == 1 and started_at is not None:
        epoch_s = max(0.0, curve.last_wall - started_at)
    return Epochs(current, total, ended, curve.last_wall, epoch_s)


def _has_fractions(curve: EpochCurve) -> bool:
    return not all(float(value).is_integer() for value in (curve.last_value, curve.lowest or 0.0, curve.finite_sum))


def _inclusive(totals: Iterable[int | None], last: float, from_zero: bool) -> Iterable[int | None]:
    """Count `Epoch 0/7` to `Epoch 7/7` as eight."""
    return (total + 1 if from_zero and total and total == last else total for total in totals)
