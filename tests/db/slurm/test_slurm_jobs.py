"""Attempts that Slurm gives their devices: gateways, jobs, and the nodes of jobs."""

from __future__ import annotations

import pytest

from db.attempts import attempt_queries
from db.exceptions import Superseded
from db.nodes import node_queries, node_reports
from db.runs import run_queries, run_requests
from db.scheduling import queue_placement
from db.slurm import slurm_jobs
from db.tasks import desired_state
from domain.messages import JobReport, State
from domain.requests.errors import InvalidRequest
from tests.db.cluster import Cluster, facts, send_heartbeat


@pytest.fixture
def gateway(store) -> Cluster:
    return Cluster(store, join(store, "login", slurm_jobs.GATEWAY, slots=0))


def join(store, name: str, pool: str, **more) -> str:
    return node_reports.register_node(store, facts(name, pool=pool, **more), None, 100.0).node_id


def launch(gateway: Cluster, **spec) -> str:
    run_id = gateway.launch(**{"pool": "slurm", "nodes": 2, "gpus_per_node": 1} | spec)
    turn(gateway)
    return run_id


def turn(gateway: Cluster) -> None:
    send_heartbeat(gateway.store, gateway.node_id, gateway.now)
    slurm_jobs.assign_gateways(gateway.store, gateway.now)
    queue_placement.place_queue(gateway.store, gateway.now)


def desired_jobs(gateway: Cluster):
    return slurm_jobs.job_requests(gateway.store, gateway.node_id, lambda fence: f"secret {fence}")


def report_job(gateway: Cluster, state: str, reason: str = "", **more) -> str | None:
    (desired_job,) = desired_jobs(gateway)
    said = JobReport(**{"job_id": "7", "state": state, "reason": reason, "partition": "gpu"} | more)
    return slurm_jobs.reported(gateway.store, gateway.node_id, desired_job.fence, said, gateway.now)


def view(gateway: Cluster, run_id: str):
    return run_queries.run(gateway.store, run_id, gateway.now)


def history(gateway: Cluster, run_id: str) -> list[str]:
    return [line.text for line in run_queries.history(gateway.store, run_id)]


def test_without_a_gateway_a_run_is_refused_unless_it_may_wait(store, cluster):
    with pytest.raises(InvalidRequest, match="no gateway to a Slurm cluster has joined") as refused:
        cluster.launch(pool="slurm")
    assert refused.value.field == "pool"
    run_id = cluster.launch(pool="slurm", wait_for_nodes=True)
    turn(cluster)
    assert view(cluster, run_id).waiting_for.startswith("Slurm: no gateway to the cluster is connected")


def test_a_gateway_is_told_of_a_run_and_the_run_says_what_slurm_says(gateway):
    run_id = launch(gateway)
    (desired_job,) = desired_jobs(gateway)
    assert (desired_job.run_id, desired_job.attempt, desired_job.action, desired_job.secret) == (
        run_id,
        1,
        "run",
        f"secret {desired_job.fence}",
    )
    assert view(gateway, run_id).waiting_for == "Slurm: the job is being submitted"
    assert report_job(gateway, "PENDING", "Resources", starts_at=500.0) == run_id
    assert report_job(gateway, "PENDING", "Resources", starts_at=500.0) is None, "once is enough"
    turn(gateway)
    seen = view(gateway, run_id)
    assert seen.waiting_for == "Slurm: waiting for resources (job 7, partition gpu)"
    assert seen.expected_start_at == 500.0
    gateway.now = 200.0
    slurm_jobs.assign_gateways(gateway.store, gateway.now)
    queue_placement.place_queue(gateway.store, gateway.now)
    assert view(gateway, run_id).waiting_for.startswith("no contact with the gateway login; when last heard")


def test_the_nodes_of_a_job_are_for_its_attempt_alone(gateway):
    run_id = launch(gateway)
    (desired_job,) = desired_jobs(gateway)
    ours = join(gateway.store, "n0", "")
    others = join(gateway.store, "n0", "slurm:999")
    first = join(gateway.store, "n0", slurm_jobs.pool_of(desired_job.fence))
    assert len({ours, others, first}) == 3, "one name in three pools is three nodes"
    report_job(gateway, "RUNNING", nodes="n[0-1]")
    turn(gateway)
    assert view(gateway, run_id).state == State.QUEUED, "one of its two nodes is there"
    second = join(gateway.store, "n1", slurm_jobs.pool_of(desired_job.fence))
    turn(gateway)
    assert view(gateway, run_id).state == State.STARTING
    placed = [
        [a.run_id for a in desired_state.assignments(gateway.store, node)] for node in (ours, others, first, second)
    ]
    assert placed == [[], [], [run_id], [run_id]]
    other_run = gateway.launch(nodes=1, gpus_per_node=1)
    send_heartbeat(gateway.store, ours, gateway.now)
    queue_placement.place_queue(gateway.store, gateway.now)
    assert [a.run_id for a in desired_state.assignments(gateway.store, ours)] == [other_run]


def test_nodes_of_jobs_vanish_from_the_list_and_stay_in_the_history(gateway):
    run_id = launch(gateway)
    (desired_job,) = desired_jobs(gateway)
    _, second = (join(gateway.store, name, slurm_jobs.pool_of(desired_job.fence)) for name in ("n0", "n1"))
    turn(gateway)
    assert [node.name for node in node_queries.nodes(gateway.store, 100.0)] == ["login", "n0", "n1"]
    assert [node.name for node in node_queries.nodes(gateway.store, 200.0)] == ["login"]
    assert [node.name for node in node_queries.nodes(gateway.store, 200.0, also=second)] == ["login", "n1"]
    (attempt,) = attempt_queries.attempts(gateway.store, run_id)
    assert [task.node for task in attempt.tasks] == ["n0", "n1"]


def test_a_job_over_before_its_workers_came_ends_the_attempt(gateway):
    run_id = launch(gateway)
    report_job(gateway, "REFUSED", "Invalid account", job_id=None)
    ended = view(gateway, run_id)
    assert (ended.state, ended.reason) == (State.FAILED, "launch failed")
    assert ended.message == "Slurm refused the job: Invalid account."
    assert desired_jobs(gateway) == []
    assert history(gateway, run_id)[-1] == "failed: Slurm refused the job: Invalid account."


def test_end_of_the_job_ends_what_workers_did_not_report(gateway):
    run_id = launch(gateway, max_restarts=1)
    (desired_job,) = desired_jobs(gateway)
    for name in ("n0", "n1"):
        join(gateway.store, name, slurm_jobs.pool_of(desired_job.fence))
    turn(gateway)
    report_job(gateway, "TIMEOUT", "TimeLimit", time_limit="1:00:00")
    first, second = attempt_queries.attempts(gateway.store, run_id)
    assert (first.state, first.reason) == (State.FAILED, "time limit")
    assert "of 1:00:00" in first.message and "esume it" in first.next_step
    assert second.state == State.QUEUED, "its own policy opens the next attempt"


def test_an_end_that_the_workers_told_stands(gateway):
    run_id = launch(gateway, nodes=1)
    (desired_job,) = desired_jobs(gateway)
    worker = Cluster(gateway.store, join(gateway.store, "n0", slurm_jobs.pool_of(desired_job.fence)))
    turn(gateway)
    worker.report(desired_job.fence, "running")
    worker.report(desired_job.fence, "succeeded")
    (desired_job,) = desired_jobs(gateway)
    assert desired_job.action == "stop", "what is left of the job may go"
    report_job(gateway, "CANCELLED")
    assert view(gateway, run_id).state == State.SUCCEEDED and desired_jobs(gateway) == []


def test_a_run_stopped_while_it_waits_has_its_job_ended(gateway):
    run_id = launch(gateway)
    report_job(gateway, "PENDING", "Resources")
    run_requests.request_stop(gateway.store, run_id, 101.0)
    assert view(gateway, run_id).state == State.STOPPED
    assert [desired_job.action for desired_job in desired_jobs(gateway)] == ["stop"]
    report_job(gateway, "CANCELLED")
    assert desired_jobs(gateway) == [] and view(gateway, run_id).state == State.STOPPED


def test_a_stopped_run_whose_job_is_ended_was_stopped(gateway):
    run_id = launch(gateway, nodes=1)
    (desired_job,) = desired_jobs(gateway)
    join(gateway.store, "n0", slurm_jobs.pool_of(desired_job.fence))
    turn(gateway)
    run_requests.request_stop(gateway.store, run_id, 101.0)
    report_job(gateway, "CANCELLED")
    assert (view(gateway, run_id).state, view(gateway, run_id).reason) == (State.STOPPED, None)


def test_another_gateways_word_on_a_job_does_not_count(gateway):
    launch(gateway)
    (desired_job,) = desired_jobs(gateway)
    other = join(gateway.store, "other", slurm_jobs.GATEWAY, slots=0)
    with pytest.raises(Superseded):
        slurm_jobs.reported(gateway.store, other, desired_job.fence, JobReport(state="CANCELLED"), 100.0)


def test_labels_choose_among_clusters(store):
    named = {name: join(store, name, slurm_jobs.GATEWAY, slots=0, labels={"cluster": name}) for name in ("a", "b")}
    first = Cluster(store, named["a"])
    launch(first, labels={"cluster": "b"})
    send_heartbeat(store, named["b"], 100.0)
    slurm_jobs.assign_gateways(store, 100.0)
    assert (
        len(slurm_jobs.job_requests(store, named["b"], str)) == 1
        and slurm_jobs.job_requests(store, named["a"], str) == []
    )
    with pytest.raises(InvalidRequest, match="no gateway to Slurm has these labels; known: a and b"):
        launch(first, labels={"cluster": "c"})
