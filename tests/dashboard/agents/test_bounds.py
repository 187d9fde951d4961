"""What an agent with a token of scope mcp may: launch within its budget, and act on what it launched alone."""

from __future__ import annotations

from typing import Any

from tests.dashboard.agents.talking import Agent
from tests.dashboard.running import Running
from tests.db.watched_hosts import watch_request

SPEC = {"target": "image_classifier", "gpus_per_node": 1, "name": "own"}


def bounded(dashboard: Running, **bounds: float) -> str:
    """A token of scope mcp with these bounds; its secret."""
    answer = dashboard.http.post("/api/tokens", json={"name": "agent", "scope": "mcp"} | bounds)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def test_an_agent_acts_on_its_own_runs_alone(dashboard):
    dashboard.node()
    other = dashboard.launch(name="of a person")
    agent = Agent(dashboard, bounded(dashboard, budget_s=36000.0, most_devices=1))
    own = agent.call("launch", spec=SPEC, key="1").document["run"]["id"]
    refused = agent.call("act", run=other, action="stop", key="2")
    assert refused.is_error
    assert "not made with token agent" in refused.text
    assert dashboard.run(other)["state"] != "stopped"
    assert agent.call("act", run=own, action="stop", key="3").document["run"]["stop_requested_at"]


def test_what_exceeds_the_budget_is_refused_with_the_number(dashboard):
    dashboard.node()
    agent = Agent(dashboard, bounded(dashboard, budget_s=60.0))
    refused = agent.call("launch", spec=SPEC, key="1")
    assert refused.is_error
    assert "device-hours left" in refused.text
    assert dashboard.http.get("/api/runs").json() == []


def test_without_a_budget_an_agent_proposes_and_launches_nothing(dashboard):
    dashboard.node()
    agent = Agent(dashboard, bounded(dashboard))
    proposed: dict[str, Any] = agent.call("propose", spec=SPEC).document
    assert proposed["link"]
    assert "token with a budget" in agent.call("launch", spec=SPEC, key="1").text


def test_an_agent_watches_nothing(dashboard):
    token = bounded(dashboard, budget_s=36000.0)
    body = watch_request(started_at=dashboard.service.clock() - 5.0).model_dump(mode="json")
    with dashboard.anonymous(Authorization=f"Bearer {token}") as http:
        answer = http.post("/api/watch", json=body)
    assert (answer.status_code, dashboard.http.get("/api/runs").json()) == (403, [])
    assert "is mcp: it may not watch runs" in answer.json()["detail"]["message"]
