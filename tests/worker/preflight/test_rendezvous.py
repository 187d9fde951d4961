"""What a node says and waits for before it starts a rank of a run on several nodes."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from domain.assignments import CheckPeer
from domain.messages import NodeCheck, Reason
from tests.worker.launch.environments import install_torch, site_packages, venv
from tests.worker.node_under_test import RUN
from tests.worker.virtual_node import VirtualNode, nothing
from worker.preflight import node_check

TWO_NODES = {"nodes": 2, "gpus_per_node": 1}
ENDPOINT = {"master_addr": "127.0.0.1", "master_port": 4711}


@pytest.fixture
def node(virtual_node: VirtualNode) -> VirtualNode:
    return virtual_node


def assign(node: VirtualNode, *, may_start: bool, action: str = "run", **more) -> None:
    script = node.script(nothing)
    spec = TWO_NODES | more
    node.assign(node.assignment(script, action=action, node_rank=1, spec=spec, may_start=may_start, **ENDPOINT))


def interpreters(node: VirtualNode) -> list[str | None]:
    return [report.interpreter["torch"] for _, report in node.server.reports if report.interpreter]


def checks(node: VirtualNode) -> list[NodeCheck]:
    return [report.preflight for _, report in node.server.reports if report.preflight]


def until_prepared(node: VirtualNode) -> None:
    node.until(lambda: checks(node) and checks(node)[-1].is_prepared)


def test_nothing_starts_before_the_nodes_agree(node: VirtualNode) -> None:
    assign(node, may_start=False)
    until_prepared(node)
    node.time.advance(5.0)
    assert node.machine.supervisors == [] and node.server.states() == ["starting"]
    assign(node, may_start=True)
    assert node.until_settled().state == "succeeded"
    assert len(node.machine.supervisors) == 1


def test_node_reports_its_checks_before_and_after_its_code_arrives(node: VirtualNode) -> None:
    assign(node, may_start=False)
    until_prepared(node)
    node.time.advance(5.0)
    before, after = checks(node)
    assert (before.is_prepared, before.code, after.is_prepared) == (False, None, True)
    assert after.code and after.disk_free_bytes and after.interpreter["torch"]
    (way,) = after.reached
    assert (way.port, way.problem) == (4711, "connection refused") and abs(after.clock_offset_s) < 1
    assign(node, may_start=True)
    node.until_settled()
    commands = [report for _, report in node.server.reports if report.argv]
    assert [report.interpreter["path"] for report in commands] == [sys.executable]


def test_a_worker_that_is_replaced_while_it_waits_waits_on(node: VirtualNode) -> None:
    assign(node, may_start=False)
    until_prepared(node)
    node.start_worker()
    node.time.advance(5.0)
    assert node.machine.supervisors == [] and len(checks(node)) == 4  # the new one looks and says again: no harm
    assign(node, may_start=True)
    assert node.until_settled().state == "succeeded"


def test_nodes_check_the_interpreter_before_they_know_the_rendezvous(node: VirtualNode) -> None:
    script = node.script(nothing)
    node.assign(node.assignment(script, node_rank=1, spec=TWO_NODES, may_start=False))
    node.until(lambda: (node.dir(node_rank=1) / "worker/interpreter.json").exists())
    node.time.advance(5.0)
    assert checks(node) == [] and not (node.dir(node_rank=1) / "launch.json").exists()
    assign(node, may_start=True)
    assert node.until_settled().state == "succeeded"


def test_a_stop_while_it_waits_ends_it_unstarted(node: VirtualNode) -> None:
    assign(node, may_start=False)
    until_prepared(node)
    assign(node, may_start=False, action="stop")
    end = node.until_settled()
    assert (end.state, end.message) == ("stopped", "it was stopped before it started")
    assert node.machine.supervisors == []


def test_an_attempt_that_ended_while_it_waited_is_given_up(node: VirtualNode) -> None:
    assign(node, may_start=False)
    until_prepared(node)
    node.server.superseded.add(1)
    node.assign()
    node.until(lambda: not node.daemon.attempts)
    assert node.machine.supervisors == [] and node.server.end() is None


def test_a_lost_reply_is_asked_for_again(node: VirtualNode) -> None:
    node.server.loses_replies = True
    node.server.calls = 2
    assign(node, may_start=False)
    until_prepared(node)
    node.until(lambda: checks(node)[-1].is_prepared)


def test_a_run_on_one_node_waits_for_nobody_and_tells_its_interpreter(node: VirtualNode) -> None:
    node.assign(node.assignment(node.script(nothing)))
    node.until_settled()
    assert node.server.reports[0][1].interpreter["path"] == sys.executable
    assert len(interpreters(node)) == 1


def test_an_interpreter_without_torch_starts_nothing(node: VirtualNode, tmp_path: Path) -> None:
    environment = venv(tmp_path / "env")
    node.assign(node.assignment(node.script(nothing), spec={"python": str(environment)}))
    end = node.until_settled()
    assert (end.state, end.reason) == ("failed", Reason.LAUNCH_FAILED)
    assert end.message == (
        f"The Python {environment}/bin/python has no torch on node n0: "
        "install torch in it, add a lock file with torch to the code, or choose another with --python."
    )
    assert node.machine.supervisors == []


def test_an_interpreter_with_an_old_torch_starts_nothing(node: VirtualNode, tmp_path: Path) -> None:
    environment = venv(tmp_path / "env")
    install_torch(site_packages(environment), "2.3.1+cu121", "12.1")
    node.assign(node.assignment(node.script(nothing), spec={"python": f"{environment}/bin/python"}))
    end = node.until_settled()
    assert end.reason == Reason.LAUNCH_FAILED and "is 2.3.1+cu121, older than the 2.4" in end.message


def test_the_sentence_says_when_it_is_the_nodes_default(node: VirtualNode, tmp_path: Path) -> None:
    node.node = type(node.node)(name="n0", data_dir=node.folder / "data", python="/nowhere/python")
    node.start_worker()
    node.assign(node.assignment(node.script(nothing)))
    assert node.until_settled().message == (
        "The interpreter /nowhere/python does not exist on node n0 (whose default it is): choose another with --python."
    )


def test_the_first_node_holds_the_port_until_all_may_start(node: VirtualNode) -> None:
    first = node.assignment(node.script(nothing), spec=TWO_NODES, may_start=False)
    node.assign(first)
    port = node.until(lambda: next((r.master_port for _, r in node.server.reports if r.master_port), None))
    peer = CheckPeer(node_rank=0, address="127.0.0.1", port=port)
    node.until(lambda: checks(node) and checks(node)[-1].is_prepared)
    assert checks(node)[-1].port == port
    for _ in range(2):
        assert node_check.probe_port(peer, f"rankzero run {RUN}/1 1").problem is None
        assert node_check.probe_port(peer, f"rankzero run {RUN}/2 2").trouble == "foreign"
        node.assign(first)  # a stale list, without the port
        node.time.advance(1.0)
    endpoint = {"master_addr": "127.0.0.1", "master_port": port}
    node.assign(first.model_copy(update={"may_start": True} | endpoint))
    assert node.until_settled().state == "succeeded"
    assert node_check.probe_port(peer, "").trouble == "refused"
    assert len({report.master_port for _, report in node.server.reports if report.master_port}) == 1


def test_an_address_that_is_not_of_this_machine_is_told(node: VirtualNode) -> None:
    node.node = replace(node.node, address="192.0.2.1")
    node.start_worker()
    node.assign(node.assignment(node.script(nothing), spec=TWO_NODES, may_start=False))
    node.until(lambda: checks(node))
    assert checks(node)[0].port_problem == "cannot listen at 192.0.2.1: cannot assign requested address"


def test_a_missing_script_and_interpreter_are_told_with_what_was_found(node: VirtualNode) -> None:
    wanted = {"node_rank": 1, "spec": TWO_NODES, "may_start": False} | ENDPOINT
    node.assign(node.assignment("/nowhere/train.py", **wanted))
    end = node.until_settled()
    assert end.reason == Reason.SCRIPT_MISSING and end.preflight.problem == end.message
    spec = TWO_NODES | {"python": "/nowhere/python"}
    node.assign(node.assignment(node.script(nothing), **wanted | {"spec": spec, "attempt": 2, "fence": 2}))
    node.until_settled()
    last_report = node.server.end(2)
    assert (
        last_report.preflight.interpreter == {"problem": last_report.message} and last_report.preflight.problem is None
    )


def test_a_node_without_room_for_the_runs_directory_says_so(node: VirtualNode) -> None:
    (node.node.data_dir / "runs").parent.mkdir(parents=True, exist_ok=True)
    (node.node.data_dir / "runs").write_text("a file where the directory should be")
    node.assign(node.assignment(node.script(nothing)))
    node.until(lambda: node.server.end())
    assert "directory could not be created on node n0" in node.server.end().message
