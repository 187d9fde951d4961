"""Hung ranks are told from slow ones."""

from __future__ import annotations

import pytest

from worker.monitor.hangs import PythonFrame, RankStatus, hang_verdict, ranks_behind

HERE, THERE = (PythonFrame("/a/train.py", 41, "step"),), (PythonFrame("/a/train.py", 52, "main"),)


def status(rank, step=40, moved=1000.0, doing="computing", **more):
    return RankStatus(rank, 100 + rank, 2, step, moved if step else None, 900.0, 1001.0, doing, **more)


@pytest.mark.parametrize(
    ("statuses", "behind"),
    [
        ([status(0, 41), status(1, 40)], [1]),
        ([status(0, 40), status(1, 40)], []),
        ([status(0, 40, doing="backward"), status(1, 40)], [1]),
        ([status(0, 40, doing="waiting"), status(1, 40, doing="data")], [1]),
        ([status(0, 40, doing="waiting"), status(1, 40, doing="waiting")], []),
        ([status(0, 41, doing="waiting"), status(1, 40, ended=True)], [1]),
        ([status(2, 9), status(0, 12), status(1, 9)], [1, 2]),
        ([status(0)], []),
        ([], []),
    ],
)
def test_the_rank_behind_has_fewer_steps_or_does_not_wait(statuses, behind):
    assert [each.rank for each in ranks_behind(statuses)] == behind


PAIR = [status(0, doing="backward", frames=THERE), status(1, frames=HERE)]


@pytest.mark.parametrize(
    ("statuses", "idle_s", "median_step_s", "patience_s", "hangs"),
    [
        (PAIR, 59, 0.1, None, False),
        (PAIR, 61, 0.1, None, True),
        (PAIR, 61, None, None, True),
        (PAIR, 299, 30.0, None, False),
        (PAIR, 301, 30.0, None, True),
        (PAIR, 11, 0.1, 10.0, True),
        (PAIR, 9, 0.1, 10.0, False),
        ([status(0, moved=1100.0), status(1)], 100, 0.1, None, False),
        ([status(0, doing="saving"), status(1, doing="waiting")], 600, 0.1, None, False),
        ([status(0, doing="validating"), status(1)], 600, 0.1, None, False),
        ([status(0, doing="compiling"), status(1)], 600, 0.1, 10.0, False),
        ([status(0, doing="saving"), status(1)], 1801, 0.1, None, True),
        ([status(0, 0), status(1, 0)], 200, None, None, False),
        ([status(0, 0), status(1, 0)], 701, None, None, True),
        ([status(0, ended=True), status(1, ended=True)], 600, 0.1, None, False),
        ([], 600, None, None, False),
    ],
)
def test_ranks_hang_when_none_has_stepped_for_long_and_none_is_busy(statuses, idle_s, median_step_s, patience_s, hangs):
    verdict = hang_verdict(statuses, 1000.0 + idle_s, median_step_s, patience_s)
    assert (verdict is not None) == hangs


def test_the_verdict_names_who_is_behind_and_where_the_others_wait():
    verdict = hang_verdict(PAIR, 1075.0, 0.12)
    assert (verdict.since, verdict.idle_s, [each.rank for each in verdict.behind]) == (1000.0, 75.0, [1])
    assert verdict.sentence == (
        "No rank has made a step for 75 s (a step took 0.12 s). Rank 1 is behind: at train.py line 41 in step, "
        "after step 40. Waiting: rank 0 at train.py line 52 in main, after step 40."
    )


def test_a_rank_that_ended_is_what_the_others_wait_for():
    verdict = hang_verdict([status(0, 41, doing="waiting"), status(1, 40, ended=True)], 1100.0, 0.1)
    assert "Rank 1 is behind: has ended after step 40." in verdict.sentence
