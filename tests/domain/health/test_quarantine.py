"""What puts hardware in quarantine, and what never does."""

from __future__ import annotations

import pytest

from domain.health.quarantine import NODE, REMEMBERED_S, Incident, IncidentKind, blamed, may_be_hardware, quarantines
from domain.health.quarantine import silence_counts as counts
from domain.health.xids import in_words, is_hardware

DAY_S = 86_400.0


def failed(at: float, device: str = "GPU-1", *, began_at: float | None = None, is_strike: bool = True) -> Incident:
    """An attempt of ten seconds that failed on a device."""
    began_at = at - 10 if began_at is None else began_at
    return Incident(IncidentKind.FAILED, at, f"failure at {at:g}", device, began_at, is_strike=is_strike)


def left_out(*incidents: Incident, trusted: dict[str, float] | None = None, now: float = 1000.0) -> set[str]:
    return {*quarantines(incidents, trusted or {}, now)}


def test_two_failed_attempts_put_the_device_in_quarantine_with_the_last_as_evidence():
    assert left_out(failed(100)) == set()
    found = quarantines([failed(100), failed(200)], {}, 1000.0)
    assert {*found} == {"GPU-1"}
    assert (
        found["GPU-1"].why == "2 attempts failed because of this device; the last: failure at 200"
        and found["GPU-1"].since == 200
    )


def test_what_may_be_the_programs_own_never_counts():
    assert left_out(*(failed(at, is_strike=False) for at in range(100, 900, 50))) == set()
    error = {"exception": "ValueError: bad labels", "exit_code": 1}
    for reason in ("script error", "exit code", "killed", "timed out", "hung", "disk full", "preflight", None):
        assert blamed(reason, error) is None
    assert blamed("out of memory", {"fault": "device"}) is None
    assert blamed("script error", {"fault": "device"}) == "device" and blamed("node lost", {"fault": "node"}) == "node"


def test_a_device_is_avoided_where_it_may_have_been_the_cause():
    assert may_be_hardware("killed", {}) and may_be_hardware("exit code", {})
    assert may_be_hardware("script error", {"exception": "RuntimeError: CUDA error: unspecified launch failure"})
    assert not may_be_hardware("script error", {"exception": "ValueError: bad labels"})
    assert not may_be_hardware("out of memory", {})


def test_attempts_that_ran_and_failed_together_are_one_strike():
    assert left_out(failed(100), failed(101), failed(102)) == set()
    assert left_out(failed(100), failed(101), failed(300)) == {"GPU-1"}


def test_failures_on_different_devices_are_not_added_up():
    assert left_out(failed(100, "GPU-1"), failed(200, "GPU-2"), failed(300, NODE)) == set()


def test_an_attempt_that_succeeded_in_between_clears_the_strikes_before():
    assert left_out(failed(100), failed(200), trusted={"GPU-1": 150.0}) == set()
    assert left_out(failed(100), failed(200), trusted={"GPU-1": 50.0}) == {"GPU-1"}


def test_old_strikes_are_forgotten():
    now = REMEMBERED_S + 150
    assert left_out(failed(100), failed(now - 10), now=now) == set()


@pytest.mark.parametrize("xid", [48, 64, 74, 79, 95])
def test_an_error_of_the_hardware_needs_no_second(xid):
    assert is_hardware(xid)
    one = Incident(IncidentKind.XID, 100, f"Xid {xid}", "GPU-1", number=xid)
    assert left_out(one, trusted={"GPU-1": 500.0}) == {"GPU-1"}


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 94, 109, 63, 999])
def test_the_programs_errors_and_contained_ones_never_count(xid):
    many = [Incident(IncidentKind.XID, at, f"Xid {xid}", "GPU-1", number=xid) for at in range(700)]
    assert left_out(*many) == set()


def test_an_xid_is_named_in_words():
    assert in_words(79) == "Xid 79 (fallen off the bus)" and in_words(999) == "Xid 999"


@pytest.mark.parametrize(
    "kind", [IncidentKind.MEMORY, IncidentKind.THROTTLED, IncidentKind.PREFLIGHT, IncidentKind.SLOW]
)
def test_signs_alone_are_remembered_and_never_count(kind):
    assert left_out(*(Incident(kind, at, "a sign", "GPU-1", number=1) for at in range(100, 900))) == set()


@pytest.mark.parametrize("kind", [IncidentKind.PASSED, IncidentKind.RELEASED])
@pytest.mark.parametrize("device", ["GPU-1", NODE])
def test_a_passed_test_or_a_person_clears_the_device(kind, device):
    cleared = Incident(kind, 300, "cleared", device)
    assert left_out(failed(100), failed(200), cleared) == set()
    assert left_out(failed(100), failed(200), cleared, failed(400)) == set()
    assert left_out(failed(100), failed(200), cleared, failed(400), failed(500)) == {"GPU-1"}


def test_what_clears_one_device_clears_no_other_and_not_the_node():
    cleared = Incident(IncidentKind.PASSED, 300, "passed", "GPU-2")
    assert left_out(failed(100), failed(200), cleared) == {"GPU-1"}
    assert left_out(failed(100, NODE), failed(200, NODE), cleared) == {NODE}


def test_a_wrong_result_of_a_test_is_enough():
    assert left_out(Incident(IncidentKind.WRONG, 100, "the product of two matrices was wrong", "GPU-3")) == {"GPU-3"}


def test_a_node_of_which_two_devices_are_left_out_is_left_out():
    fallen = [Incident(IncidentKind.XID, 100, "Xid 79", device, number=79) for device in ("GPU-1", "GPU-2")]
    found = quarantines(fallen, {}, 1000.0)
    assert {*found} == {"GPU-1", "GPU-2", NODE}
    assert found[NODE].why == "2 of its devices are in quarantine: Xid 79"


def test_silence_speaks_against_a_node_only_while_others_are_heard():
    assert counts(lost=1, in_contact=1) and counts(lost=1, in_contact=7)
    assert not counts(lost=1, in_contact=0) and not counts(lost=2, in_contact=1) and not counts(lost=0, in_contact=3)
