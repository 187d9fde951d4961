"""Tokens with a budget over the API: made and listed with it, and refused beyond it with the number."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.dashboard.running import Running, wait_for

SPEC = {"target": "image_classifier", "gpus_per_node": 1}
HOUR_S = 3600.0
SWEEP = {"spec": SPEC, "parameters": {"lr": {"values": [0.1, 0.2, 0.3]}}, "metric": "train/loss"}


def make(dashboard: Running, **terms: Any) -> httpx2.Response:
    return dashboard.http.post("/api/tokens", json={"name": "agent", "scope": "mcp"} | terms)


def agent(dashboard: Running, **terms: Any) -> httpx2.Client:
    """Somebody with a token of scope mcp for two device-hours unless the terms say another."""
    made = make(dashboard, **{"budget_s": 2 * HOUR_S} | terms)
    assert made.status_code == 201, made.text
    return dashboard.anonymous(Authorization=f"Bearer {made.json()['token']}")


def test_token_is_made_and_listed_with_its_bounds_and_use(dashboard: Running) -> None:
    dashboard.node(slots=4)
    token = agent(dashboard, most_devices=2, longest_s=HOUR_S)
    assert token.post("/api/runs", json=SPEC).status_code == 201
    budget = {"budget_s": 7200.0, "most_devices": 2, "longest_s": 3600.0, "used_s": 3600.0, "devices": 1}
    (listed,) = dashboard.http.get("/api/tokens").json()
    assert listed["budget"] == budget
    assert token.get("/api/whoami").json()["token"]["budget"] == budget
    (entry,) = [one for one in dashboard.http.get("/api/audit").json() if one["action"] == "token-made"]
    bounds = "2 device-hours, at most 2 devices at a time, 1 h a run"
    assert entry["more"] == {"scope": "mcp", "of": "owner", "bounds": bounds}


@pytest.mark.parametrize(
    ("terms", "field"),
    [
        ({"most_devices": 2}, "most_devices"),
        ({"longest_s": 60.0}, "longest_s"),
        ({"budget_s": 0}, "budget_s"),
        ({"budget_s": 60.0, "scope": "read"}, "budget_s"),
        ({"budget_s": 60.0, "scope": "admin"}, "budget_s"),
        ({"budget_s": 60.0, "most_devices": 0}, "most_devices"),
    ],
)
def test_bounds_that_bound_nothing_are_refused(dashboard: Running, terms: dict[str, Any], field: str) -> None:
    answer = make(dashboard, **terms)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]["field"] == field


def test_refused_launch_has_the_number_and_is_written_down(dashboard: Running) -> None:
    dashboard.node(slots=4)
    token = agent(dashboard)
    assert [token.post("/api/runs", json=SPEC).status_code for _ in range(2)] == [201, 201]
    answer = token.post("/api/runs", json=SPEC | {"project": "vision"})
    sentence = (
        "This launch would take 1 device for up to 1 h (1 device-hours); token agent has 0 of 2 device-hours left."
    )
    assert (answer.status_code, answer.json()["detail"]["message"]) == (403, sentence)
    entry = dashboard.http.get("/api/audit").json()[0]
    assert (entry["action"], entry["via"], entry["project"]) == ("launch-refused", "token agent", "vision")
    assert entry["more"] == {"why": sentence}
    assert len(dashboard.http.get("/api/runs").json()) == 2


def test_agent_without_a_budget_previews_and_launches_nothing(dashboard: Running) -> None:
    dashboard.node()
    token = agent(dashboard, budget_s=None)
    assert token.post("/api/preview", json=SPEC).status_code == 200
    for path, body in (("/api/runs", SPEC), ("/api/sweeps", SWEEP)):
        answer = token.post(path, json=body)
        assert answer.status_code == 403 and "it may only propose a run" in answer.text, answer.text
    assert dashboard.http.get("/api/runs").json() == []


def test_login_asks_for_no_budget(dashboard: Running) -> None:
    asked = {"name": "laptop", "scope": "mcp", "budget_s": 60.0}
    assert dashboard.anonymous().post("/api/login-requests", json=asked).status_code == 422


def test_agents_sweep_waits_for_its_devices_and_pays_for_each_trial(dashboard: Running) -> None:
    node = dashboard.node(slots=4)
    token = agent(dashboard, budget_s=10 * HOUR_S, most_devices=1)
    answer = token.post("/api/sweeps", json=SWEEP)
    assert answer.status_code == 201, answer.text
    for trial in (1, 2, 3):
        wait_for(lambda: node.client.desired_state(None, 0).assignments, f"trial {trial}")
        run_id = node.assignment().run_id
        assert token.post(f"/api/runs/{run_id}/stacks").status_code == 403, "it is for people"
        assert token.patch(f"/api/runs/{run_id}", json={"note": "mine"}).status_code == 200
        node.report(node.task(), "running")
        node.report(node.task(), "succeeded")
    budget = dashboard.http.get("/api/tokens").json()[0]["budget"]
    assert 0.0 < budget["used_s"] < HOUR_S, "each ended at once, which gave back what it had reserved"
    assert budget["devices"] == 0
