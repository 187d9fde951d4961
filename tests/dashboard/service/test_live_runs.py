"""A run's text is read once for all who look at it."""

from __future__ import annotations

import pytest

from dashboard.service.live_runs import LIVE_RUN_AGE_S, LiveRuns


@pytest.fixture
def reads() -> list[str]:
    return []


@pytest.fixture
def runs(reads: list[str]) -> LiveRuns:
    return LiveRuns(lambda run_id: f"{run_id} {reads.append(run_id) or len(reads)}")


def test_viewers_share_what_one_has_read(runs: LiveRuns, reads: list[str]) -> None:
    assert runs.kept("a", 0.0) is None
    assert runs.text("a", 0.0) == "a 1"
    assert runs.kept("a", LIVE_RUN_AGE_S / 2) == runs.text("a", LIVE_RUN_AGE_S / 2) == "a 1"
    assert reads == ["a"]


def test_a_text_that_is_old_or_changed_is_read_again(runs: LiveRuns) -> None:
    runs.text("a", 0.0)
    assert runs.kept("a", LIVE_RUN_AGE_S) is None
    assert runs.text("a", LIVE_RUN_AGE_S) == "a 2"
    runs.forget("a")
    assert runs.kept("a", LIVE_RUN_AGE_S) is None


def test_a_text_that_changed_while_it_was_read_is_not_kept() -> None:
    runs = LiveRuns(lambda run_id: runs.forget(run_id) or "old")
    assert runs.text("a", 0.0) == "old"
    assert runs.kept("a", 0.0) is None
