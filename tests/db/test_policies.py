"""What a run does by itself after a hang, if it says so."""

from __future__ import annotations

from db import queries
from db.policies import HANGS_IN_A_ROW, carry_on_after_hang
from db.states import Reason, State


def hang(cluster, run_id: str, reason: Reason = Reason.HUNG) -> int:
    """The run's latest attempt runs, hangs and has been ended; its fence."""
    (wish,) = cluster.wished()
    cluster.report(wish.fence, "running")
    cluster.report(wish.fence, "failed", reason=reason, message="No rank has made a step for 61 s.")
    return wish.fence


def state(cluster, run_id: str) -> tuple[int, State]:
    view = queries.run(cluster.store, run_id, cluster.now)
    return view.attempt, view.state


def test_a_hung_run_goes_on_in_the_next_attempt_when_it_says_so(cluster):
    run_id = cluster.launch(on_hang="resume")
    assert carry_on_after_hang(cluster.store, hang(cluster, run_id), cluster.now) == 2
    assert state(cluster, run_id) == (2, State.QUEUED)
    assert "resumed from the beginning" in queries.history(cluster.store, run_id)[-1].text


def test_it_is_opened_once_however_often_the_end_is_reported(cluster):
    run_id = cluster.launch(on_hang="resume")
    fence = hang(cluster, run_id)
    carry_on_after_hang(cluster.store, fence, cluster.now)
    assert carry_on_after_hang(cluster.store, fence, cluster.now) is None
    assert state(cluster, run_id)[0] == 2


def test_it_stays_ended_otherwise(cluster):
    for spec, reason in ({"on_hang": "end"}, Reason.HUNG), ({"on_hang": "resume"}, Reason.SCRIPT_ERROR):
        run_id = cluster.launch(**spec)
        assert carry_on_after_hang(cluster.store, hang(cluster, run_id, reason), cluster.now) is None
        assert state(cluster, run_id) == (1, State.FAILED)


def test_a_run_that_always_hangs_is_left_alone_in_the_end(cluster):
    run_id = cluster.launch(on_hang="resume")
    opened = []
    for _ in range(HANGS_IN_A_ROW):
        opened.append(carry_on_after_hang(cluster.store, hang(cluster, run_id), cluster.now))
        cluster.place()
    assert opened == [2, 3, None]
    assert queries.history(cluster.store, run_id)[-1].text == "not resumed: it hung 3 times in a row"
    carry_on_after_hang(
        cluster.store, latest_fence(cluster, run_id), cluster.now
    )  # its end is reported again
    assert [line.text for line in queries.history(cluster.store, run_id)].count(
        "not resumed: it hung 3 times in a row"
    ) == 1


def latest_fence(cluster, run_id: str) -> int:
    """Of the run's latest attempt."""
    return queries.attempts(cluster.store, run_id)[-1].fence
