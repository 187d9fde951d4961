"""A run's text is read once for all who look at it."""

from __future__ import annotations

import pytest

from dashboard.service.live_runs import LIVE_RUN_AGE_S, LiveRuns


class Viewed:
    """The runs that are looked at, and which of them were read for it."""

    def __init__(self) -> None:
        self.runs, self.reads = LiveRuns(), list[str]()

    def text(self, run_id: str, now: float) -> str:
        return self.runs.text(run_id, now, lambda: self._read(run_id))

    def _read(self, run_id: str) -> str:
        self.reads.append(run_id)
        return f"{run_id} {len(self.reads)}"


@pytest.fixture
def viewed() -> Viewed:
    return Viewed()


def test_viewers_share_what_one_has_read(viewed: Viewed) -> None:
    assert viewed.runs.kept("a", 0.0) is None
    assert viewed.text("a", 0.0) == "a 1"
    assert viewed.runs.kept("a", LIVE_RUN_AGE_S / 2) == viewed.text("a", LIVE_RUN_AGE_S / 2) == "a 1"
    assert viewed.reads == ["a"]


def test_a_text_that_is_old_or_changed_is_read_again(viewed: Viewed) -> None:
    viewed.text("a", 0.0)
    assert viewed.runs.kept("a", LIVE_RUN_AGE_S) is None
    assert viewed.text("a", LIVE_RUN_AGE_S) == "a 2"
    viewed.runs.forget("a")
    assert viewed.runs.kept("a", LIVE_RUN_AGE_S) is None


def test_a_text_that_changed_while_it_was_read_is_not_kept() -> None:
    runs = LiveRuns()
    assert runs.text("a", 0.0, lambda: runs.forget("a") or "old") == "old"
    assert runs.kept("a", 0.0) is None
