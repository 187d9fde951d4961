"""Idle cores are counted over a second or more, and are those that this process may use."""

from __future__ import annotations

import pytest

from worker.node.control_groups import CpuQuota
from worker.node.hardware import IdleCores, cores, idle_cores


def test_idle_cores_are_those_between_two_measurements():
    idle_s = iter([900.0, 1000.0, 1003.0, 1003.0])
    idle = IdleCores(lambda: (next(idle_s), []))
    assert idle.count(5.0) == 0, "nothing is known yet"
    assert idle.count(5.9) == 0
    assert idle.count(7.0) == 1.5
    assert idle.count(7.9) == 1.5, "measured once a second"
    assert idle.count(9.0) == 0


@pytest.mark.parametrize(
    ("quota", "used_s", "idle"),
    [(2.0, 1.0, 1.5), (2.0, 5.0, 0.0), (64.0, 1.0, 30.0), (2.0, None, 0.0)],
    ids=["half a core used", "the quota is used up", "the machine is the limit", "the use is unknown"],
)
def test_a_quota_leaves_what_its_group_does_not_use(quota: float, used_s: float | None, idle: float):
    """60 seconds of idle cores within 2 seconds: the machine has 30."""
    first = CpuQuota(quota, None if used_s is None else 7.0)
    then = CpuQuota(quota, None if used_s is None else 7.0 + used_s)
    assert idle_cores((100.0, [first]), (160.0, [then]), passed_s=2.0) == idle


def test_this_process_has_no_more_idle_cores_than_it_may_use():
    idle = IdleCores()
    idle.count(0.0)
    assert 0 <= idle.count(1e6) <= cores()
