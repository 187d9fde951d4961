"""Tools that change something happen once and within rights, and every call is written down and counted."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dashboard.agents.mcp.calls import MOST_A_MINUTE, MOST_AT_ONCE, Calls
from dashboard.agents.own_api import ToolRefused
from dashboard.security.guard.auth import Principal
from db.models import AuditEntry, Run
from tests.dashboard.agents.talking import Agent, token_of


def test_only_a_token_with_a_budget_launches_and_a_key_launches_once(dashboard):
    dashboard.node()
    spec = {"target": "image_classifier", "gpus_per_node": 1, "name": "once"}
    for token in (dashboard.token, token_of(dashboard, "reader", "read"), token_of(dashboard, "plain", "launch")):
        refused = Agent(dashboard, token).call("launch", spec=spec, key="k1")
        assert refused.is_error
        assert "token with a budget" in refused.text
        assert "propose" in refused.text
    agent = Agent(dashboard, token_of(dashboard, "agent", "launch", budget_s=36000.0))
    first = agent.call("launch", spec=spec, key="k1").document
    again = agent.call("launch", spec=spec, key="k1").document
    assert again["run"]["id"] == first["run"]["id"]
    assert again["was_launched_before"]
    other = agent.call("launch", spec=spec | {"seed": 3}, key="k1")
    assert other.is_error
    assert "another `key`" in other.text
    assert len(dashboard.http.get("/api/runs").json()) == 1
    with dashboard.service.store.read() as session:
        assert session.scalars(select(Run.via)).all() == ["token agent"]


def test_a_refused_launch_frees_its_key(dashboard):
    dashboard.node()
    agent = Agent(dashboard, token_of(dashboard, "agent", "launch", budget_s=36000.0))
    refused = agent.call("launch", spec={"target": "image_classifier", "gpus_per_node": 99}, key="k")
    assert refused.is_error
    assert not agent.call("launch", spec={"target": "image_classifier", "gpus_per_node": 1}, key="k").is_error


def test_a_launch_that_failed_on_the_way_keeps_its_key(dashboard, monkeypatch):
    dashboard.node()
    agent = Agent(dashboard, token_of(dashboard, "agent", "launch", budget_s=36000.0))

    def fail() -> None:
        raise PoolTimeout

    monkeypatch.setattr(dashboard.service.scheduler, "schedule_launch", fail)  # the run is in the store by then
    spec = {"target": "image_classifier", "gpus_per_node": 1}
    assert agent.call("launch", spec=spec, key="k").is_error
    monkeypatch.undo()
    assert "not answered yet" in agent.call("launch", spec=spec, key="k").text
    assert len(dashboard.http.get("/api/runs").json()) == 1


def test_runs_are_stopped_resumed_and_tagged_once_for_a_key(dashboard, node):
    run_id = dashboard.launch(name="mine")
    reader = Agent(dashboard, token_of(dashboard, "reader", "read"))
    assert reader.call("act", run=run_id, action="stop", key="1").is_error
    agent = Agent(dashboard, token_of(dashboard, "agent", "act"))
    tagged = agent.call("act", run=run_id, action="tag", add_tags=["seen"], key="1")
    assert "seen" in tagged.text
    task = node.task()
    stopped = agent.call("act", run=run_id, action="stop", reason="enough", key="2").document
    assert stopped["run"]["stop_requested_at"]
    node.report(task, "stopped", exit_code=0)
    assert agent.call("act", run=run_id, action="resume", key="3").document["run"]["attempt"] == 2
    again = agent.call("act", run=run_id, action="resume", key="3").document
    assert (again["run"]["attempt"], again["was_asked_before"]) == (2, True)
    assert "add_tags" in agent.call("act", run=run_id, action="tag", key="4").text


def test_each_call_is_in_the_audit_log_with_its_token(dashboard):
    dashboard.node()
    run_id = dashboard.launch(name="one")
    agent = Agent(dashboard, token_of(dashboard, "agent", "read"))
    agent.call("runs", filter="state:queued")
    agent.call("run", run=run_id)
    assert agent.call("compare", runs=["one"]).is_error
    for _ in range(2):
        agent.call("wait", run=run_id, timeout_s=0)
    with dashboard.service.store.read() as session:
        query = select(AuditEntry).where(AuditEntry.action == "tool-called").order_by(AuditEntry.id)
        entries = [(one.object, one.via, one.by, one.more) for one in session.scalars(query)]
    assert entries == [
        ("tool runs", "token agent", "owner", {"filter": "state:queued"}),
        ("tool run", "token agent", "owner", {"run": run_id}),
        ("tool compare", "token agent", "owner", {"runs": "['one']"}),
        (f"tool wait on {run_id}", "token agent", "owner", {"run": run_id}),
    ]


def test_a_token_has_so_many_open_calls_and_no_more():
    calls, api = Calls(None, lambda: 0.0), SimpleNamespace(principal=Principal("user", "bearer", access_token="hash"))
    with ExitStack() as opened:
        for _ in range(MOST_AT_ONCE):
            opened.enter_context(calls._counted(api))
        with pytest.raises(ToolRefused, match=f"{MOST_AT_ONCE} open calls"), calls._counted(api):
            pass
    with calls._counted(api):
        pass


def test_too_many_calls_are_refused_with_the_number(dashboard):
    dashboard.node()
    agent = Agent(dashboard, token_of(dashboard, "agent", "read"))

    async def often(client: Any) -> list[Any]:
        return [await client.call_tool("cluster", {}) for _ in range(MOST_A_MINUTE + 1)]

    answers = agent.do(often)
    assert [answer.is_error for answer in answers] == [False] * MOST_A_MINUTE + [True]
    assert f"{MOST_A_MINUTE} calls" in answers[-1].content[0].text
    dashboard.pass_by(61)
    assert not agent.call("cluster").is_error
