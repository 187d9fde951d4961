"""Rates and growth of counters: nothing is said of a counter that is new or began anew."""

from __future__ import annotations

from worker.hardware.readings import Counters, Readings


def test_a_rate_is_growth_per_second_since_the_last_reading() -> None:
    counters = Counters()
    assert counters.rates(10.0, {"sent": 100}) == {}
    assert counters.rates(12.0, {"sent": 300, "new": 5}) == {"sent": 100.0}
    assert counters.rates(13.0, {"sent": 0, "new": 5}) == {"new": 0.0}, "a counter that began anew"
    assert counters.rates(13.0, {"sent": 9}) == {}, "no time has passed"


def test_growth_is_zero_at_first_and_never_negative() -> None:
    counters = Counters()
    assert [counters.growth("errors", value) for value in (7, 7, 9, 1, 2)] == [0, 0, 2, 0, 1]


def test_readings_name_their_device_and_leave_out_what_was_not_read() -> None:
    readings = Readings(events={"Xid 79": 79.0})
    readings.add("power_w", 61)
    readings.add("temperature_c", None)
    under = readings.under("gpu0")
    assert (under.values, under.events) == ({"gpu0/power_w": 61.0}, {"gpu0: Xid 79": 79.0})
