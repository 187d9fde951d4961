"""Where another program has the port at which a run's nodes were to meet, they meet at another one."""

from __future__ import annotations

import socket

import pytest

from domain.assignments import Assignment
from tests.end_to_end.product import free_port
from tests.worker.real_node import RealNode
from worker.node.state_files import read_object, write_whole
from worker.preflight import node_check

pytestmark = pytest.mark.real
TWO_NODES = {"nodes": 2, "gpus_per_node": 1}
ENDPOINT = {"master_addr": "127.0.0.1", "master_port": 4711}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_check, "CONNECT_LIMIT_S", 0.1)  # these nodes are alone


def started_port(node: RealNode, node_rank: int) -> int | None:
    return read_object(node.dir(node_rank=node_rank) / "launch.json").get("master_port")


def end(node: RealNode, assignment: Assignment) -> None:
    node.assign(assignment.model_copy(update={"action": "stop"}))
    assert node.until_settled().state == "stopped"


def test_the_first_node_takes_another_port_when_a_program_has_the_one_it_chose(node: RealNode) -> None:
    spec = TWO_NODES | {"launcher": "torchrun", "stop_grace_s": 0}
    unplaced = node.assignment(node.script("pass"), spec=spec)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        write_whole(node.dir() / "worker" / "port", str(taken))
        node.assign(unplaced)
        endpoints = lambda: [r.master_port for _, r in node.server.reports if r.master_port]  # noqa: E731
        node.until(lambda: len(set(endpoints())) == 2)
        assert endpoints()[0] == taken and node.server.end() is None
        node.assign(unplaced.model_copy(update={"master_addr": "127.0.0.1", "master_port": taken}))  # late
        node.until(lambda: started_port(node, 0) == endpoints()[-1] and node.supervisor())
        assert endpoints()[-1] != taken
        output = (node.dir() / "logs" / f"launcher-at-{taken}.err").read_text()
        assert "EADDRINUSE" in output
    end(node, unplaced.model_copy(update={"master_addr": "127.0.0.1", "master_port": endpoints()[-1]}))
    assert len(node.supervisors) == 2


def test_the_others_follow_to_the_new_port_also_after_their_worker_was_replaced(node: RealNode) -> None:
    spec = TWO_NODES | {"launcher": "torchrun", "stop_grace_s": 0}
    first, second, third = (
        node.assignment(node.script("pass"), node_rank=1, spec=spec, **ENDPOINT | {"master_port": port})
        for port in (free_port() for _ in range(3))
    )
    has_supervisor = (node.dir(node_rank=1) / "supervisor.json").exists
    node.assign(first)
    node.until(has_supervisor)
    node.assign(second)
    node.until(lambda: started_port(node, 1) == second.master_port and has_supervisor())
    node.start_worker()  # which finds only the first assignment on disk, and believes no port until it is told
    for _ in range(5):
        node.turn()
    assert started_port(node, 1) == second.master_port and len(node.supervisors) == 2
    node.assign(third)
    node.until(lambda: started_port(node, 1) == third.master_port and len(node.supervisors) == 3)
    assert node.server.states() == ["starting"]
    end(node, third)
