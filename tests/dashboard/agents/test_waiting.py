"""The tool `wait`: it returns when something comes, says only what is new, and ends with its token."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.dashboard.agents.talking import NEW, OLD, Agent, token_of
from tests.dashboard.running import wait_for


@pytest.mark.parametrize("mode", [NEW, OLD])
def test_a_wait_returns_with_the_end_and_says_only_what_is_new(dashboard, node, mode):
    run_id = dashboard.launch(name="awaited")
    agent = Agent(dashboard, token_of(dashboard, "agent", "read"), mode)
    first = agent.call("wait", run=run_id, timeout_s=0).document
    assert (first["reached"], first["state"]) == ("timeout", "starting")
    task = node.task()
    node.report(task, "running")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(agent.call, "wait", run=run_id, timeout_s=300, cursor=first["cursor"])
        wait_for(lambda: dashboard.service.hub.watched(run_id), "the wait to begin")
        node.report(task, "succeeded", exit_code=0)
        ended = waiting.result().document
    assert (ended["reached"], ended["state"]) == ("ended", "succeeded")
    again = agent.call("wait", run=run_id, timeout_s=0, cursor=ended["cursor"]).document
    assert "state" not in again


def test_a_condition_is_waited_for_and_a_wrong_one_is_refused_with_an_example(dashboard, node):
    run_id = dashboard.launch()
    task = node.task()
    node.report(task, "running")
    node.log_points(task, 0, val__loss=[(10, 0.5, 1000.0), (20, 0.1, 1001.0)])
    said = Agent(dashboard).call("wait", run=run_id, until="val/loss < 0.2", timeout_s=60)
    assert said.document["reached"] == "condition"
    assert f"<{said.mark}>val/loss</{said.mark}>" in str(said.document["values"])
    wrong = Agent(dashboard).call("wait", run=run_id, until="soon")
    assert wrong.is_error
    assert "val/loss < 0.2" in wrong.text


def test_a_revoked_token_ends_a_wait(dashboard, node):
    run_id = dashboard.launch()
    agent = Agent(dashboard, token_of(dashboard, "agent", "read"))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(agent.call, "wait", run=run_id, timeout_s=600)
        wait_for(lambda: dashboard.service.hub.watched(run_id), "the wait to begin")
        assert dashboard.http.delete("/api/tokens/agent").status_code == 200
        said = waiting.result(timeout=60)
    assert said.is_error
    assert "revoked" in said.text
