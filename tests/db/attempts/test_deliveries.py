"""An ended attempt whose node has still to send something: its state, devices, next attempt, and readers."""

from __future__ import annotations

import pytest

from db.alerts.run_facts import run_facts
from db.archives.documents import run_document
from db.attempts import new_attempt
from db.checkpoints import checkpoint_reports
from db.exceptions import Superseded, WrongState
from db.findings import findings
from db.runs import deletion, run_queries, run_requests
from db.runs.run_requests import NewTrial
from db.studies import studies
from domain.messages import Delivery, Reason, State
from domain.scaling.plan import PlannedPoint, ScalingPlan
from domain.spec import RunSpec
from domain.sweeps import SweepPlan
from tests.db.attempts.offers import offer, store_checkpoint
from tests.db.cluster import send_heartbeat

LEFT = Delivery(sent_bytes=800 * 2**20, total_bytes=2**30, seconds_left=180.0)
MESSAGE = "rank 1 on gpu-1: ValueError: bad label 17"


def fail(cluster, left: Delivery | None = LEFT, **more) -> int:
    """The run's latest attempt runs and fails, and its node has something left; its fence."""
    fence = cluster.assignments()[-1].fence
    cluster.report(fence, "running")
    cluster.report(fence, "failed", reason=Reason.SCRIPT_ERROR, message=MESSAGE, delivery=left, **more)
    return fence


def shown(cluster, run_id: str):
    return run_queries.run(cluster.store, run_id, cluster.now)


def test_the_end_stands_at_once_with_a_flag_and_frees_its_devices(cluster):
    first = cluster.launch()
    second = cluster.launch()
    fence = fail(cluster)
    run = shown(cluster, first)
    assert (run.state, run.message) == (State.FAILED, MESSAGE)
    assert run.delivery.sentence == "sending what is left: 0.8 of 1.0 GiB, 3 min"
    cluster.place()
    assert shown(cluster, second).state == State.STARTING
    assert fence in {assignment.fence for assignment in cluster.assignments()}
    cluster.report(fence, "failed")
    assert shown(cluster, first).delivery is None
    assert fence not in {assignment.fence for assignment in cluster.assignments()}


def test_a_silent_node_is_named_and_is_not_waited_for_at_a_stop(cluster):
    run_id = cluster.launch()
    fence = fail(cluster)
    cluster.now += 60
    assert shown(cluster, run_id).delivery.sentence == "what is left could not be sent: gpu-1 is silent"
    run_requests.request_stop(cluster.store, run_id, cluster.now)
    assert shown(cluster, run_id).delivery is None
    assert "the rest stays there" in "".join(line.text for line in run_queries.history(cluster.store, run_id))
    with pytest.raises(Superseded):
        cluster.report(fence, "failed", delivery=LEFT)


def test_a_stop_asks_the_node_to_end_it(cluster):
    run_id = cluster.launch()
    fence = fail(cluster)
    send_heartbeat(cluster.store, cluster.node_id, cluster.now)
    for _ in range(2):
        run_requests.request_stop(cluster.store, run_id, cluster.now)
    lines = [line.text for line in run_queries.history(cluster.store, run_id)]
    assert lines.count("end of sending requested: the rest stays on its node") == 1, "a repeated stop changes nothing"
    (assignment,) = cluster.assignments()
    assert (assignment.fence, assignment.ends_delivery) == (fence, True)
    cluster.report(fence, "failed")
    assert shown(cluster, run_id).delivery is None and shown(cluster, run_id).state == State.FAILED


def test_the_sending_ends_alone_where_the_next_attempt_waits_for_it(cluster):
    run_id = cluster.launch(max_restarts=1)
    fence = fail(cluster, LEFT.model_copy(update={"has_checkpoints": True}))
    new_attempt.choose_awaited(cluster.store, cluster.now, 30)
    send_heartbeat(cluster.store, cluster.node_id, cluster.now)
    run_requests.end_sending(cluster.store, run_id, cluster.now)
    assert [(one.fence, one.ends_delivery) for one in cluster.assignments()] == [(fence, True)]
    run = shown(cluster, run_id)
    assert (run.attempt, run.state, run.stop_requested_at) == (2, State.QUEUED, None)
    cluster.report(fence, "failed")
    assert new_attempt.choose_awaited(cluster.store, cluster.now, 30) == [run_id]


def test_a_deletion_asks_the_node_to_end_it(cluster):
    run_id = cluster.launch()
    fail(cluster)
    send_heartbeat(cluster.store, cluster.node_id, cluster.now)
    deletion.delete(cluster.store, run_id, cluster.now)
    assert [assignment.ends_delivery for assignment in cluster.assignments()] == [True]


def test_the_next_attempt_waits_for_the_last_checkpoint_and_starts_from_it(cluster):
    run_id = cluster.launch(max_restarts=1)
    store_checkpoint(cluster, cluster.assignments()[0].fence, step=10)
    fence = fail(cluster, LEFT.model_copy(update={"has_checkpoints": True}))
    new_attempt.choose_awaited(cluster.store, cluster.now, 30)
    cluster.place()
    run = shown(cluster, run_id)
    assert (run.attempt, run.state) == (2, State.QUEUED)
    assert run.waiting_for == "waits for the last checkpoint, which gpu-1 is sending: 0.8 of 1.0 GiB"
    late = store_checkpoint(cluster, fence, path="work/step_20.pt", step=20)
    cluster.report(fence, "failed", delivery=LEFT)
    assert new_attempt.choose_awaited(cluster.store, cluster.now, 30) == [run_id]
    assert "from step 20" in run_queries.history(cluster.store, run_id)[-1].text
    cluster.now += 10
    cluster.place()
    (starting,) = [one for one in cluster.assignments() if one.attempt == 2]
    assert starting.resume_from.checkpoint_id == late


def test_the_next_attempt_does_not_wait_for_a_lost_node(cluster):
    run_id = cluster.launch(max_restarts=1)
    fail(cluster, LEFT.model_copy(update={"has_checkpoints": True}))
    cluster.now += 31
    assert new_attempt.choose_awaited(cluster.store, cluster.now, 30) == [run_id]
    assert "starts from the beginning" in run_queries.history(cluster.store, run_id)[-1].text


def test_an_attempt_from_a_checkpoint_that_a_person_named_waits_for_no_other(cluster):
    run_id = cluster.launch()
    named = store_checkpoint(cluster, cluster.assignments()[0].fence, step=10)
    fail(cluster, LEFT.model_copy(update={"has_checkpoints": True}))
    run_requests.resume(cluster.store, run_id, cluster.now, "step_10.pt")
    assert cluster.place() == [run_id]
    (starting,) = [one for one in cluster.assignments() if one.attempt == 2]
    assert starting.resume_from.checkpoint_id == named


def test_a_restart_is_not_refused_for_steps_that_are_on_their_way(cluster):
    run_id = cluster.launch(max_restarts=3)
    for _ in range(2):
        fail(cluster, LEFT.model_copy(update={"has_points": True}))
        cluster.place()
    assert shown(cluster, run_id).attempt == 3


def test_a_checkpoint_is_not_missing_while_it_is_on_its_way(cluster):
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    checkpoint_reports.offered(cluster.store, cluster.node_id, fence, 0, offer(step=20), cluster.now)
    fail(cluster)
    assert findings.findings(cluster.store, run_id) == []
    cluster.report(fence, "failed")
    assert [finding.kind for finding in findings.findings(cluster.store, run_id)] == [findings.KIND]


def test_a_trial_has_its_result_once_its_points_have_arrived(cluster):
    plan = SweepPlan.model_validate({"parameters": {"lr": {"values": [0.1]}}, "metric": "val/loss"})
    spec = RunSpec(target="image_classifier", gpus_per_node=1)
    sweep_id = studies.create(cluster.store, spec, plan, cluster.now)
    run_requests.submit(cluster.store, spec, cluster.now, part_of=NewTrial(sweep_id, 0, {"lr": 0.1}))
    cluster.place()
    fence = fail(cluster, LEFT.model_copy(update={"has_points": True}))

    def state():
        return studies.study(cluster.store, sweep_id, SweepPlan).trials[0].run_state

    assert state() == State.STOPPING
    cluster.report(fence, "failed", delivery=LEFT)
    assert state() == State.FAILED


def test_a_run_of_a_study_is_measured_once_its_points_have_arrived(cluster):
    spec = RunSpec(target="image_classifier", gpus_per_node=1)
    point = PlannedPoint(devices=1, nodes=1, strategy="ddp", kind="cpu", changes={})
    plan = ScalingPlan(mode="strong", steps=20, points=[point])
    study_id = studies.create(cluster.store, spec, plan, cluster.now)
    run_requests.submit(cluster.store, spec, cluster.now, part_of=NewTrial(study_id, 0, {"point": 0}))
    cluster.place()
    fence = fail(cluster, LEFT.model_copy(update={"has_points": True}))
    assert studies.study(cluster.store, study_id, ScalingPlan).trials[0].run_state == State.STOPPING
    cluster.report(fence, "failed", delivery=LEFT)
    assert studies.study(cluster.store, study_id, ScalingPlan).trials[0].run_state == State.FAILED


def test_alerts_judge_curves_that_still_arrive(cluster):
    run_id = cluster.launch()
    fence = fail(cluster)
    later = cluster.now + 3600
    assert [facts.run_id for facts in run_facts(cluster.store, later)] == [run_id]
    cluster.report(fence, "failed")
    assert run_facts(cluster.store, later) == []


def test_an_archive_is_made_once_everything_has_arrived(cluster):
    run_id = cluster.launch()
    fence = fail(cluster)
    with pytest.raises(WrongState, match="still sending"):
        run_document(cluster.store, run_id)
    cluster.report(fence, "failed")
    assert run_document(cluster.store, run_id).run["id"] == run_id
