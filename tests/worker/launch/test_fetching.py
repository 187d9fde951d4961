"""What an attempt fetches before it starts, and what it says of it meanwhile."""

from __future__ import annotations

import pytest

from domain.assignments import ResumeFrom
from domain.messages import Reason
from tests.virtual_time import VirtualTime
from tests.worker.fake_server import FakeServer
from worker.launch import preparation
from worker.launch.preparation import CannotStart, Downloads
from worker.session.failures import ChecksumMismatch

SOURCE = ResumeFrom(checkpoint_id=3, name="work/last.pt", sha256="0" * 64, size_bytes=4, download_path="/x")


@pytest.fixture
def server():
    made = FakeServer()
    made.downloads[3] = b"data"
    return made


def test_a_large_checkpoint_says_how_far_it_has_come_and_when_it_is_there(server, tmp_path, monkeypatch):
    monkeypatch.setattr(preparation, "REPORT_EVERY_S", 0.0)
    notices = []
    Downloads(server, "r/2", lambda: False, notices.append).fetch_checkpoint(SOURCE, tmp_path / "last.pt")
    assert [(each.name, each.size_bytes) for each in notices] == [("work/last.pt", 4)] * 6
    assert [each.done_bytes for each in notices] == [0, 1, 2, 3, 4, 4]
    assert [each.is_verified for each in notices] == [False] * 5 + [True]


def test_a_small_checkpoint_is_only_said_to_be_there(server, tmp_path):
    notices = []
    Downloads(server, "r/2", lambda: False, notices.append).fetch_checkpoint(SOURCE, tmp_path / "last.pt")
    assert [each.is_verified for each in notices] == [True]


def test_a_stop_does_not_wait_for_the_rest_of_a_checkpoint(server, tmp_path):
    begun = []

    def is_stopped() -> bool:
        begun.append(True)
        return len(begun) > 2

    with pytest.raises(CannotStart, match="stopped while the checkpoint") as refused:
        Downloads(server, "r/2", is_stopped, lambda _: None).fetch_checkpoint(SOURCE, tmp_path / "last.pt")
    assert refused.value.reason == Reason.RESUME_FAILED
    assert not (tmp_path / "last.pt").exists()


@pytest.mark.parametrize("mismatches", [1, 2])
def test_damaged_file_is_fetched_once_more(server, tmp_path, monkeypatch, mismatches):
    fetched, download = [], server.download

    def wrong_first(*arguments: object) -> None:
        fetched.append(True)
        if len(fetched) <= mismatches:
            raise ChecksumMismatch("it does not match its listed SHA-256")
        download(*arguments)

    monkeypatch.setattr(server, "download", wrong_first)
    downloads = Downloads(server, "r/2", lambda: False, lambda _: None, VirtualTime())
    if mismatches == 1:
        downloads.fetch_checkpoint(SOURCE, tmp_path / "last.pt")
        assert (tmp_path / "last.pt").exists()
    else:
        with pytest.raises(CannotStart, match="arrived damaged twice"):
            downloads.fetch_checkpoint(SOURCE, tmp_path / "last.pt")
    assert len(fetched) == 2
