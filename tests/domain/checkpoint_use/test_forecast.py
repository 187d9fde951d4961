"""When the disk is full at the present rate."""

from __future__ import annotations

import pytest

from domain.checkpoint_use.forecast import Arrivals, forecast
from domain.text.formats import GIB

NOW = 1_000_000.0


def test_it_says_when_the_disk_is_full():
    soon = forecast(30 * GIB, 10 * GIB / 3600, 0, [])
    assert soon.sentence == "30 GiB free, full in 3 h at this rate (10 GiB an hour)"
    assert soon.is_soon and not forecast(300 * GIB, 10 * GIB / 3600, 0, []).is_soon


def test_without_a_rate_it_is_never_full():
    idle = forecast(30 * GIB, 0.0, GIB, [])
    assert idle.full_in_s is None and not idle.is_soon
    assert idle.sentence == "30 GiB free; 1 GiB of deleted checkpoints are still there"


def test_a_disk_without_free_space_is_full_now():
    assert forecast(-5, 1.0, 0, []).full_in_s == 0


def test_the_rate_is_that_of_the_last_hour():
    moments = [(NOW - 600.0 * number, 600) for number in range(6)] + [(NOW - 7200, 10**9)]
    assert Arrivals(moments).rate(NOW) == pytest.approx(1.0)


def test_without_an_arrival_in_the_last_hour_it_is_that_of_the_day():
    moments = [(NOW - 7200.0 * number, 7200) for number in range(1, 4)]
    assert Arrivals(moments).rate(NOW) == pytest.approx(7200 * 3 / 28_800)


def test_a_first_checkpoint_is_no_rate_of_a_moment():
    assert Arrivals([(NOW - 1, 600)]).rate(NOW) == pytest.approx(1.0)
    assert Arrivals([]).rate(NOW) == 0.0
