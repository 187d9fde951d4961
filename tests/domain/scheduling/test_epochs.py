"""How far a run is in its epochs: counted from 0 or 1, told at their begin or end, whole or as fractions."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from domain.scheduling.epochs import epochs_of


class Told(NamedTuple):
    """A series of epochs, ten seconds apart."""

    finite_count: int
    first_wall: float
    last_wall: float
    last_value: float
    lowest: float | None
    finite_sum: float


def told(*values: float) -> Told:
    return Told(len(values), 0.0, 10.0 * (len(values) - 1), values[-1], min(values), sum(values))


@pytest.mark.parametrize(
    ("curve", "losses", "current", "ended"),
    [
        (told(1, 2, 3), 3, 3, 3),
        (told(0, 1, 2), 3, 3, 3),
        (told(1, 2, 3), 0, 3, 3),
        (told(1, 2, 3), 30, 3, 2),
        (told(0, 1, 2), 30, 3, 2),
        (told(0, 0, 0, 1, 1, 1, 2, 2), 8, 3, 2),
        (told(5, 6), 2, 6, 6),
        (told(0.5, 1.0, 1.5), 3, 1.5, 1.5),
        (told(0.5, 1.0), 2, 1.0, 1.0),
    ],
)
def test_an_epoch_is_counted_from_one_and_ends_with_the_next(
    curve: Told, losses: int, current: float, ended: float
) -> None:
    place = epochs_of(curve, losses, [8])
    assert place is not None and (place.current, place.ended, place.total) == (current, ended, 8)
    assert place.share == ended / 8


def test_what_is_left_takes_the_mean_time_of_an_epoch() -> None:
    at_end, at_begin = epochs_of(told(1, 2, 3), 3, [8]), epochs_of(told(1, 2, 3), 30, [8])
    assert at_end is not None and at_begin is not None
    assert (at_end.left_s(20.0), at_begin.left_s(20.0), at_end.left_s(25.0), at_end.left_s(900.0)) == (50, 60, 45, 0)
    first = epochs_of(told(1), 1, [8])
    assert first is not None and (first.current, first.left_s(0.0)) == (1, None)
    since_start = epochs_of(told(1), 1, [8], started_at=-12.0)
    assert since_start is not None and since_start.left_s(0.0) == 7 * 12
    for begun in (epochs_of(told(1), 5, [8], -12.0), epochs_of(told(5), 1, [8], -12.0)):
        assert begun is not None and begun.epoch_s is None


@pytest.mark.parametrize(
    ("curve", "totals", "total"),
    [
        (told(1, 2), (None, 8, 9), 8),
        (told(1, 2, 3), (2, None, 9), 9),
        (told(1, 2, 3), (2,), None),
        (told(0, 1, 2), (2,), 3),
        (told(1, 2), (), None),
        (None, (8,), None),
        (told(float("nan")), (8,), None),
    ],
)
def test_a_total_that_is_passed_is_dropped(
    curve: Told | None, totals: tuple[int | None, ...], total: int | None
) -> None:
    place = epochs_of(curve, 0, totals)
    assert (place.total if place else None) == total
