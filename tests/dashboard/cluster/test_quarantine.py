"""A node in quarantine: seen and told of by everybody, tested by its worker, released by a person."""

from __future__ import annotations

import json
import threading
import time

import pytest

from cli import main
from domain.health.testing import DeviceResult, TestAnswer
from domain.messages import DeviceFault, NodeLoad
from tests.dashboard.running import FakeNode, Running, wait_for


def break_device(node: FakeNode, device: str) -> None:
    """The node's driver reports a device that has fallen off the bus."""
    fault = DeviceFault(device=device, kind="Xid", number=79, at=time.time())
    node.client.load(NodeLoad(faults=[fault]))


def answer_tests(node: FakeNode, *, is_right: bool) -> threading.Thread:
    """The worker's side of the next test."""

    def answer() -> None:
        test = wait_for(lambda: node.client.desired_state(None, 1).tests, "the request")[0]
        results = [DeviceResult(device=device, part="memory", is_right=is_right) for device in test.devices]
        node.client.answer_test(test.test_id, TestAnswer(results=results))

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def quarantines(dashboard: Running) -> list[str | None]:
    """Why each device of the node is in quarantine."""
    (node,) = dashboard.http.get("/api/nodes").json()
    return [device["quarantine"] and device["quarantine"]["why"] for device in node["devices"]]


def test_a_quarantine_is_told_and_ended_by_a_passed_test_or_a_person(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    refused = dashboard.http.post("/api/alerts", json={"rule": "quarantine", "target": "browser", "project": "x"})
    assert refused.status_code == 422 and "about hardware" in refused.text
    assert main.run(["alert", "add", "quarantine", "--to", "browser"]) == 0
    break_device(node, "cpu:1")
    why = "Xid 79 (fallen off the bus)"
    wait_for(lambda: quarantines(dashboard) == [None, why], "the quarantine")
    notices = wait_for(lambda: dashboard.http.get("/api/notifications").json()["notifications"], "the message")
    assert notices[0]["sentence"] == f"GPU cpu:1 of n0 is in quarantine: {why}" and notices[0]["run"] is None
    waiting = dashboard.launch(gpus_per_node=2)
    assert "1 slot of n0 is in quarantine or tested" in dashboard.run(waiting)["waiting_for"]
    capsys.readouterr()
    assert main.run(["nodes"]) == 0
    assert f"n0: slot 1 is in quarantine: {why}" in capsys.readouterr().out

    worker = answer_tests(node, is_right=True)
    assert main.run(["nodes", "test", "n0"]) == 0
    worker.join()
    assert "all results are right" in capsys.readouterr().out and quarantines(dashboard) == [None, None]
    wait_for(lambda: dashboard.run(waiting)["state"] == "starting", "the start")
    assert node.report(node.task(), "failed") == "failed"

    worker = answer_tests(node, is_right=False)
    assert main.run(["nodes", "test", "n0", "--json"]) == 1
    worker.join()
    (tested,) = [json.loads(capsys.readouterr().out)]
    assert tested["quarantine"]["why"].startswith("2 of its devices are in quarantine")
    assert main.run(["nodes", "release", "n0"]) == 0 and quarantines(dashboard) == [None, None]
    assert main.run(["nodes", "release", "n0"]) == 1
    assert "Node n0 is not in quarantine." in capsys.readouterr().err
    kinds = [one["kind"] for one in dashboard.http.get("/api/nodes/n0/incidents").json()]
    assert kinds == ["released", "failed test", "failed test", "passed test", "Xid"]
