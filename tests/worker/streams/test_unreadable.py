"""A stream that cannot be read is told and tried again, and only one that may recover is waited for."""

from __future__ import annotations

import errno

import pytest

from tests.virtual_time import VirtualTime
from worker.session.failures import ServerAway
from worker.streams.omissions import PATIENCE_S, RETRY_S, Unreadable


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def unreadable(time: VirtualTime) -> Unreadable:
    return Unreadable(time)


def test_failing_stream_has_nothing_more_and_one_finding(unreadable, time):
    assert unreadable.judge("event files", KeyError("tag")) is False
    (finding,) = unreadable.findings()
    assert finding.kind == "not read" and "event files: KeyError: 'tag'." in finding.evidence
    assert not unreadable.is_due("event files")
    time.advance(RETRY_S)
    assert unreadable.is_due("event files")
    unreadable.worked("event files")
    assert unreadable.findings() == []


def test_only_a_failure_that_may_pass_is_waited_for(unreadable, time):
    unreadable.failed("a", ValueError("damaged"))
    assert not unreadable.may_recover
    unreadable.failed("b", OSError(errno.EIO, "I/O error"))
    assert unreadable.may_recover
    time.advance(PATIENCE_S)
    unreadable.failed("b", OSError(errno.EIO, "I/O error"))
    assert not unreadable.may_recover


@pytest.mark.parametrize("error", [ServerAway("away"), OSError(errno.ENOSPC, "full")])
def test_server_and_full_disk_are_no_fault_of_the_stream(unreadable, error):
    with pytest.raises(type(error)):
        unreadable.judge("copies", error)
    assert unreadable.findings() == []


def test_names_from_a_file_system_become_text_that_can_be_sent_and_logged(unreadable, caplog):
    unreadable.failed("work/\udcff.json", ValueError("\ud800"))
    (finding,) = unreadable.findings()
    assert finding.model_dump_json().encode()
    assert "work/?.json cannot be read" in caplog.text
    assert caplog.text.encode()
