"""Idle cores are counted over a second or more."""

from __future__ import annotations

import os

from worker.node.idle_cores import IdleCores


def test_idle_cores_are_those_between_two_measurements():
    idle_s = iter([1000.0, 1003.0, 1003.0])
    idle = IdleCores(lambda: next(idle_s))
    assert idle.count(5.0) == 0, "nothing is known yet"
    assert idle.count(5.9) == 0
    assert idle.count(7.0) == 1.5
    assert idle.count(7.9) == 1.5, "measured once a second"
    assert idle.count(9.0) == 0


def test_this_machine_has_no_more_idle_cores_than_cores():
    idle = IdleCores()
    idle.count(0.0)
    assert 0 <= idle.count(1e6) <= (os.cpu_count() or 1)
