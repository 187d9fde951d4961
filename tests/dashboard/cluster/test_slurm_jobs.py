"""What gateways and the workers of jobs may do, spoken by the worker's own client against the running server."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from dashboard.planning.preview import SlurmPreview, preview, slurm_job
from dashboard.planning.resolve import ClusterNodes, resolve
from db.models import Node, QuarantineRow
from domain.assignments import DesiredJob
from domain.messages import Device, JobReport, NodeFacts
from domain.spec import RunSpec
from tests.dashboard.running import Running, wait_for
from worker.session.client import Client
from worker.session.failures import AttemptSuperseded, RequestRefused, Unauthorized

GPU_CLUSTER = {
    "slurm": {
        "version": "slurm-wlm 22.05.8",
        "partitions": [
            {"name": "gpu", "is_default": False, "gpus_per_node": 4},
            {"name": "cpu", "is_default": True, "gpus_per_node": 0},
        ],
        "place": {
            "server": "http://gpu-0",
            "data": "/d",
            "output": "/o",
            "python": "/p",
            "training_python": "/t",
        },
    }
}


def node_facts(name: str, pool: str, slots: int = 0) -> NodeFacts:
    devices = [Device(id=f"cpu:{index}", kind="cpu", name="CPU slot") for index in range(slots)]
    return NodeFacts(
        name=name,
        instance_id=f"{name}-{pool}",
        hostname=name,
        address="10.0.0.1",
        devices=devices,
        pool=pool,
        info=GPU_CLUSTER if pool == "slurm" else {},
    )


@pytest.fixture
def gateway(dashboard: Running) -> Client:
    client = dashboard.client()
    client.register(node_facts("login", "slurm"), None, dashboard.join_token)
    return client


def launched(dashboard: Running, gateway: Client) -> tuple[str, DesiredJob]:
    run_id = dashboard.launch(pool="slurm", nodes=1, gpus_per_node=1)
    (desired_job,) = wait_for(lambda: gateway.desired_state(None, 5).jobs, "the gateway to hear of the run")
    return run_id, desired_job


def join(dashboard: Running, desired_job: DesiredJob, pool: str | None = None) -> Client:
    client = dashboard.client()
    client.register(
        node_facts("n0", f"slurm:{desired_job.fence}" if pool is None else pool, 1), None, desired_job.secret
    )
    return client


def test_a_runs_life_in_a_job(dashboard: Running, gateway: Client) -> None:
    run_id, desired_job = launched(dashboard, gateway)
    gateway.report_job(desired_job.fence, JobReport(job_id="7", state="PENDING", reason="Resources", partition="gpu"))
    wait_for(lambda: "waiting for resources" in dashboard.run(run_id)["waiting_for"], "Slurm's words")
    worker = join(dashboard, desired_job)
    (assignment,) = wait_for(lambda: worker.desired_state(None, 5).assignments, "the worker's share")
    assert assignment.run_id == run_id and not worker.desired_state(None, 0).leave
    assert dashboard.run(run_id)["state"] == "starting"
    gateway.report_job(desired_job.fence, JobReport(job_id="7", state="NODE_FAIL", nodes="n0"))
    ended = dashboard.run(run_id)
    assert (ended["state"], ended["reason"]) == ("failed", "node lost")
    assert worker.desired_state(None, 0).leave
    assert gateway.desired_state(None, 0).jobs == []


def test_the_secret_of_a_job_is_good_for_its_attempt_alone(dashboard: Running, gateway: Client) -> None:
    run_id, desired_job = launched(dashboard, gateway)
    other = desired_job.model_copy(
        update={"secret": desired_job.secret.replace(f"job-{desired_job.fence}-", "job-999-")}
    )
    for pool in ("", "slurm", "slurm:999"):
        with pytest.raises(RequestRefused, match="secret of a Slurm job is valid"):
            join(dashboard, desired_job, pool)
    with pytest.raises(Unauthorized):
        join(dashboard, other, "slurm:999")
    with pytest.raises(RequestRefused, match="secret of a Slurm job is valid"):
        join(dashboard, desired_job.model_copy(update={"secret": dashboard.join_token}))
    dashboard.service.stop(run_id)
    with pytest.raises(RequestRefused, match="has ended"):
        join(dashboard, desired_job)


def test_a_node_of_a_job_comes_back_by_its_own_token(dashboard: Running, gateway: Client) -> None:
    _, desired_job = launched(dashboard, gateway)
    worker = join(dashboard, desired_job)
    facts = node_facts("n0", f"slurm:{desired_job.fence}", 1)
    assert worker.register(facts, None, worker.token, again=True).token == worker.token
    with pytest.raises(RequestRefused, match="stays in the pool"):
        worker.register(node_facts("n0", "", 1), None, worker.token, again=True)


@pytest.mark.long
def test_a_node_whose_job_is_over_is_released_by_its_name(dashboard: Running, gateway: Client) -> None:
    run_id, desired_job = launched(dashboard, gateway)
    join(dashboard, desired_job)
    with dashboard.service.store.write() as session:
        session.add(QuarantineRow(machine="slurm/n0", device="", since=1.0, why="2 attempts failed"))
    dashboard.service.stop(run_id)

    def is_gone() -> bool:
        with dashboard.service.store.write() as session:  # contact that is still to be stored may come after it
            session.execute(update(Node).where(Node.name == "n0").values(last_seen=1.0))
        return [node["name"] for node in dashboard.http.get("/api/nodes").json()] == ["login"]

    wait_for(is_gone, "the node of the job to be gone")
    response = dashboard.http.post("/api/nodes/n0/release")
    assert response.status_code == 200, response.text
    assert response.json()["name"] == "n0" and response.json()["quarantine"] is None
    assert dashboard.http.get("/api/nodes").json()[0]["left_out"] == []


def test_ordinary_nodes_are_told_nothing_of_jobs(dashboard: Running, gateway: Client) -> None:
    _, desired_job = launched(dashboard, gateway)
    node = dashboard.node()
    desired = node.client.desired_state(None, 0)
    assert desired.jobs == [] and not desired.leave and desired.assignments == []
    with pytest.raises(AttemptSuperseded):
        node.client.report_job(desired_job.fence, JobReport(state="CANCELLED"))


def test_a_plan_shows_the_job_as_its_gateway_would_submit_it(dashboard: Running, gateway: Client) -> None:
    spec = RunSpec(target="image_classifier", pool="slurm", gpus_per_node=2)
    planned = preview(resolve(spec, dashboard.service.cluster()))
    assert isinstance(planned, SlurmPreview)
    assert "--cpus-per-task=2" in planned.job.argv and "--server http://gpu-0" in planned.job.script
    assert not [text for text in planned.warnings if "slot" in text]
    spec = RunSpec(target="image_classifier", pool="slurm", gpus_per_node=2, slurm={"partition": "gpu"})
    assert "--gpus-per-node=2" in slurm_job(spec, ClusterNodes(dashboard.service.nodes)).argv
    assert "'<server>'" in slurm_job(spec, ClusterNodes()).script
