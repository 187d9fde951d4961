"""Workers of another version: taken in, told what to upgrade, given nothing new; what trains there goes on."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import update

from db.models import Node
from domain.clients.answers import Document
from domain.lists import node_lists
from domain.protocol import PROTOCOL
from tests.dashboard.running import FakeNode, Running, wait_for
from worker.session.client import Client

OLD_BODY: dict[str, Any] = {
    "name": "old", "instance_id": "i", "hostname": "old.example", "address": "10.0.0.9", "labels": {}, "pool": "",
    "devices": [{"id": "cpu:0", "kind": "cpu", "name": "CPU slot", "memory_bytes": None}],
    "info": {"python": "/usr/bin/python3", "cores": 1, "place": "boot:1:2"}, "node_id": None, "again": False,
}  # fmt: skip
"""What a worker of the first version sends."""


def register(dashboard: Running, **more: Any) -> Client:
    """Take such a worker in; the connection it has from then on."""
    join = dashboard.anonymous(Authorization=f"Bearer {dashboard.join_token}")
    answer = join.post("/api/worker/register", json=OLD_BODY | more)
    assert answer.status_code == 200, answer.text
    assert answer.json()["protocol"] == PROTOCOL
    return dashboard.client(answer.json()["token"])


def node(dashboard: Running, name: str = "old") -> Any:
    """The node as the API has it."""
    nodes = dashboard.http.get("/api/nodes").json(object_hook=Document)
    return next(n for n in nodes if n["name"] == name)


def test_an_older_worker_is_taken_in_gets_no_runs_and_people_read_why(dashboard: Running) -> None:
    client = register(dashboard)
    run_id = dashboard.launch()
    assert client.desired_state(None, 0).assignments == []
    said = dashboard.run(run_id)["waiting_for"]
    assert said == "needs 1 slot; the worker of old must be upgraded first"
    shown = node(dashboard)
    assert (shown["protocol"], shown["free"]) == (1, 0)
    for task in ("Upgrade its worker", "protocol 1", f"dashboard {PROTOCOL}", "rankzero worker"):
        assert task in shown["upgrade"]
    assert shown["upgrade"] in node_lists.notices(shown)
    assert node_lists.node_state(shown) == "online, to upgrade"


def test_a_younger_worker_waits_for_the_dashboard(dashboard: Running) -> None:
    register(dashboard, protocol=PROTOCOL + 1)
    run_id = dashboard.launch()
    assert dashboard.run(run_id)["waiting_for"] == "needs 1 slot; old is newer than this dashboard"
    assert "Upgrade this dashboard" in node(dashboard)["upgrade"]


def test_once_upgraded_it_gets_what_waited(dashboard: Running) -> None:
    register(dashboard)
    run_id = dashboard.launch()
    identity = node(dashboard)["id"]
    register(dashboard, node_id=identity, protocol=PROTOCOL)
    wait_for(lambda: dashboard.run(run_id)["state"] == "starting", "the run to start there")
    assert node(dashboard)["upgrade"] is None


def test_server_answers_the_training_of_an_older_worker(dashboard: Running, node: FakeNode) -> None:
    """As after an upgrade of the dashboard alone: its node has never named a protocol."""
    run_id = dashboard.launch()
    task = node.task()
    node.report(task, "running")
    with dashboard.service.store.write() as session:
        session.execute(update(Node).values(protocol=None))
    answer = node.client._json("GET", "/api/worker/desired", params={"wait": 0})
    (assignment,) = answer["assignments"]
    assert (assignment["run_id"], assignment["action"]) == (run_id, "run")
    assert node.log_points(task, 0, loss=[(1, 1.0, 1.0)]) == 10
    assert node.report(task, "succeeded") == "succeeded"


@pytest.mark.parametrize("pool", ["slurm"])
def test_an_older_gateway_is_named_where_a_run_waits_for_it(dashboard: Running, pool: str) -> None:
    register(dashboard, pool=pool, devices=[], info=OLD_BODY["info"] | {"slurm": {"partitions": []}})
    run_id = dashboard.launch(pool="slurm", wait_for_nodes=True)
    dashboard.service.schedule()
    assert "the gateway old must be upgraded first" in dashboard.run(run_id)["waiting_for"]
