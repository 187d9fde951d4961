"""Which columns give way to which on a narrow terminal: ids stay whole, and a name keeps twelve letters."""

from __future__ import annotations

import pytest

from cli.table_widths import GAP, fitted

TITLES = ("id", "name", "project", "state", "ranks", "step", "loss", "samples/s", "time", "started", "by")
WIDTHS = [
    (10, 10), (45, 30), (20, 20), (16, 12), (5, 5), (6, 6), (8, 8), (9, 9), (8, 8), (10, 6), (14, 14)
]  # fmt: skip
WHOLE = {0, 4, 5, 6, 7, 8}


def total(widths: list[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def test_what_fits_is_shown_as_it_is() -> None:
    assert fitted(TITLES, WIDTHS, WHOLE, 500) == {number: longest for number, (longest, _) in enumerate(WIDTHS)}


@pytest.mark.parametrize("room", range(60, 200))
def test_a_table_never_exceeds_its_terminal_and_a_name_keeps_twelve_letters(room: int) -> None:
    fitting = fitted(TITLES, WIDTHS, WHOLE, room)
    assert total([*fitting.values()]) <= room
    assert fitting[0] == 10 and fitting[1] >= 12
    assert all(fitting[number] == WIDTHS[number][0] for number in WHOLE if number in fitting)


def test_the_least_important_columns_vanish_first() -> None:
    shown = [{TITLES[number] for number in fitted(TITLES, WIDTHS, WHOLE, room)} for room in (200, 110, 80)]
    assert shown[0] == set(TITLES) and shown[0] > shown[1] > shown[2]
    assert "samples/s" not in shown[1] and shown[2] >= {"id", "name", "state", "step", "loss", "by"}


def test_a_short_name_takes_no_more_than_it_needs_and_a_long_one_what_is_left() -> None:
    assert fitted(("name", "state"), [(3, 3), (60, 9)], set(), 40) == {0: 3, 1: 34}
    assert fitted(("name", "state"), [(300, 3), (9, 9)], set(), 40) == {0: 28, 1: 9}


def test_columns_without_a_known_importance_all_stay_and_share_the_room() -> None:
    fitting = fitted(("", "run a", "run b", "run c"), [(20, 10), (40, 12), (40, 12), (40, 12)], set(), 40)
    assert total([*fitting.values()]) <= 40 and len(fitting) == 4
