"""What a run does by itself after a failure, if it says so."""

from __future__ import annotations

import pytest

from db import acting
from db.lookups import latest_attempt
from db.models import User
from db.runs import run_queries, run_requests
from domain.messages import Reason, State
from domain.people.rights import OWNER, Rights
from domain.people.roles import Role
from domain.recovery import HANGS_IN_A_ROW, FailedAttempt, Leave, Restart, decide_restart
from domain.spec import RunSpec
from tests.db.attempts.offers import store_checkpoint

ERROR = {"exception": "ValueError: bad labels", "file": "train.py", "line": 41}


def fail(cluster, reason: Reason = Reason.SCRIPT_ERROR, *, steps: int = 0, **more) -> int:
    """The run's latest attempt runs, makes steps and fails; its fence."""
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    if steps:
        cluster.points(assignment.fence, 0, 10, {"train/loss": [(steps, 0.5, 1.0)]})
    said = {"message": "rank 1 on gpu-1: ValueError: bad labels, train.py line 41"} | more
    cluster.report(assignment.fence, "failed", reason=reason, **said)
    return assignment.fence


def hang(cluster) -> int:
    return fail(cluster, Reason.HUNG, message="No rank has made a step for 61 s.")


def state(cluster, run_id: str) -> tuple[int, State]:
    view = run_queries.run(cluster.store, run_id, cluster.now)
    return view.attempt, view.state


def history(cluster, run_id: str) -> list[str]:
    return [line.text for line in run_queries.history(cluster.store, run_id)]


def test_a_hung_run_goes_on_in_the_next_attempt_when_it_says_so(cluster):
    run_id = cluster.launch(on_hang="resume")
    hang(cluster)
    assert state(cluster, run_id) == (2, State.QUEUED)
    assert "resumed after a hang; from the beginning" in history(cluster, run_id)[-1]


def test_the_next_attempt_is_opened_once_however_often_the_end_is_reported(cluster):
    run_id = cluster.launch(on_hang="resume", max_restarts=3)
    fence = hang(cluster)
    cluster.report(fence, "failed", reason=Reason.HUNG)
    assert state(cluster, run_id) == (2, State.QUEUED)


def test_it_stays_ended_otherwise(cluster):
    for spec, reason in ({"on_hang": "end"}, Reason.HUNG), ({"on_hang": "resume"}, Reason.SCRIPT_ERROR):
        run_id = cluster.launch(**spec)
        fail(cluster, reason)
        assert state(cluster, run_id) == (1, State.FAILED)


def test_a_run_that_always_hangs_is_left_alone_in_the_end(cluster):
    run_id = cluster.launch(on_hang="resume")
    for _ in range(HANGS_IN_A_ROW):
        fence = hang(cluster)
        cluster.place()
    cluster.report(fence, "failed", reason=Reason.HUNG)  # its end is reported again
    assert state(cluster, run_id) == (HANGS_IN_A_ROW, State.FAILED)
    assert history(cluster, run_id).count("not resumed: it hung 3 times in a row") == 1


def test_a_failed_run_starts_again_from_its_last_checkpoint_as_often_as_it_says(cluster):
    run_id = cluster.launch(max_restarts=2)
    store_checkpoint(cluster, cluster.assignments()[0].fence, step=10)
    fail(cluster, steps=12)
    assert history(cluster, run_id)[-1] == (
        "restarted (1 of 2): rank 1 on gpu-1: ValueError: bad labels, train.py line 41; from step 10 of work/step_10.pt"
    )
    for _ in range(2):
        cluster.place()
        assert cluster.assignments()[0].resume_from.name == "work/step_10.pt"
        fail(cluster, steps=20)
    assert state(cluster, run_id) == (3, State.FAILED)
    assert history(cluster, run_id)[-1] == "not restarted: 2 of 2 restarts are used"


def test_a_person_who_resumes_it_gives_it_all_its_restarts_again(cluster):
    run_id = cluster.launch(max_restarts=1)
    for _ in range(2):
        fail(cluster, steps=5)
        cluster.place()
    assert state(cluster, run_id) == (2, State.FAILED)
    run_requests.resume(cluster.store, run_id, cluster.now)
    cluster.place()
    fail(cluster, steps=5)
    assert state(cluster, run_id) == (4, State.QUEUED)


def test_a_persons_stop_wins(cluster):
    run_id = cluster.launch(max_restarts=3)
    (assignment,) = cluster.assignments()
    cluster.report(assignment.fence, "running")
    run_requests.request_stop(cluster.store, run_id, cluster.now)
    cluster.report(assignment.fence, "failed", reason=Reason.SCRIPT_ERROR)
    assert state(cluster, run_id) == (1, State.FAILED)


def test_a_stop_ends_a_restart_that_waits(cluster):
    run_id = cluster.launch(max_restarts=3)
    fail(cluster)
    assert state(cluster, run_id) == (2, State.QUEUED)
    run_requests.request_stop(cluster.store, run_id, cluster.now)
    assert state(cluster, run_id) == (2, State.STOPPED)


def test_after_a_failure_without_a_step_it_waits_before_it_starts_again(cluster):
    run_id = cluster.launch(max_restarts=3)
    fail(cluster)
    assert cluster.place() == [] and state(cluster, run_id) == (2, State.QUEUED)
    waiting = run_queries.run(cluster.store, run_id, cluster.now)
    assert waiting.waiting_for == "waits 5 s before it restarts"
    assert waiting.expected_start_at == cluster.now + 5
    cluster.now += 5
    assert cluster.place() == [run_id] and state(cluster, run_id) == (2, State.STARTING)


def test_the_same_failure_again_without_a_step_is_the_last(cluster):
    run_id = cluster.launch(max_restarts=9)
    fail(cluster, error=ERROR)
    cluster.now += 5
    cluster.place()
    fail(cluster, error=ERROR | {"at": 7.0})
    assert state(cluster, run_id) == (2, State.FAILED)
    assert history(cluster, run_id)[-1].startswith("not restarted: it failed in the same way")


@pytest.mark.parametrize("reason", ["script missing", "launch failed", "resume failed"])
def test_lasting_failure_is_not_tried_again(cluster, reason):
    run_id = cluster.launch(max_restarts=9)
    fail(cluster, Reason(reason))
    assert state(cluster, run_id) == (1, State.FAILED)
    assert history(cluster, run_id)[-1] == "not restarted: another attempt would fail in the same way"


def spec(**more) -> RunSpec:
    return RunSpec(target="image_classifier", **more)


def failure(reason: str = "script error", **more) -> FailedAttempt:
    return FailedAttempt(reason, "rank 0 failed", **({"has_stepped": False} | more))


def test_pauses_grow_while_nothing_is_achieved():
    said = [decide_restart(spec(max_restarts=9), [failure(key=(i,)) for i in range(count)]) for count in range(1, 9)]
    assert [each.pause_s for each in said] == [5, 10, 20, 40, 80, 160, 300, 300]
    after_steps = [failure(has_stepped=True), failure(), failure()]
    assert decide_restart(spec(max_restarts=9), after_steps).pause_s == 0


def test_a_node_that_is_lost_is_no_fault_of_the_run():
    lost = [failure("node lost")] * 4
    assert decide_restart(spec(max_restarts=9), lost) == Restart("restarted (1 of 9): rank 0 failed", 1, 0.0)


def test_a_hang_that_is_resumed_uses_up_no_restart():
    hung = failure("hung", restarts=1)
    assert decide_restart(spec(max_restarts=1, on_hang="resume"), [hung]) == Restart("resumed after a hang", 1)
    assert isinstance(decide_restart(spec(max_restarts=1, on_hang="end"), [hung]), Leave)
    assert decide_restart(spec(max_restarts=2, on_hang="end"), [hung]).restarts == 2


def test_an_attempt_opened_by_the_policy_is_the_persons_who_launched_the_run(cluster):
    with acting.acting(Rights("ana", everywhere=Role.MEMBER)):
        run_id = cluster.launch(on_hang="resume")
    with acting.acting(Rights(None, via="worker gpu-1", everywhere=Role.OWNER)):
        hang(cluster)
    with cluster.store.read() as session:
        attempt = latest_attempt(session, run_id)
        assert (attempt.number, attempt.by, attempt.via) == (2, "ana", "the run's policy")
    *_, failed, resumed = run_queries.history(cluster.store, run_id)
    assert (failed.by, failed.via) == (None, "worker gpu-1")
    assert (resumed.by, resumed.via) == ("ana", "the run's policy")


def test_who_resumes_anothers_run_does_so_for_its_launcher(cluster):
    with acting.acting(Rights("ana", everywhere=Role.MEMBER)):
        run_id = cluster.launch()
    fail(cluster)
    with acting.acting(Rights("eva", everywhere=Role.ADMIN)):
        run_requests.resume(cluster.store, run_id, cluster.now)
    cluster.place()
    (assignment,) = cluster.assignments()
    assert (assignment.attempt, assignment.by) == (2, "ana")


def test_a_stopped_run_says_who_stopped_it_where_several_people_may_have(cluster):
    for person in None, "ana":
        if person:
            with cluster.store.write() as session:
                session.add(User(name=person, role=Role.MEMBER, created_at=1.0))
        run_id = cluster.launch()
        (assignment,) = cluster.assignments()
        with acting.acting(Rights(person or OWNER, everywhere=Role.ADMIN)):
            run_requests.request_stop(cluster.store, run_id, cluster.now)
        cluster.report(assignment.fence, "stopped", message="Stopped.")
        message = run_queries.run(cluster.store, run_id, cluster.now).message
        assert message == ("Stopped by ana." if person else "Stopped.")
