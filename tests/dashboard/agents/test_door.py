"""Who may speak to the tools of agents at all."""

from __future__ import annotations

import pytest

from domain.people.roles import Role
from tests.dashboard.persons import browser_of, person

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {}, 401),
        ("POST", {"Authorization": "Bearer rz_wrong"}, 401),
        ("POST", {"Authorization": "{token}", "Origin": "https://elsewhere.example"}, 403),
        ("POST", {"Authorization": "{token}", "Host": "elsewhere.example"}, 421),
        ("POST", {"Authorization": "{join}"}, 403),
        ("GET", {"Authorization": "{token}"}, 405),
        ("DELETE", {"Authorization": "{token}"}, 405),
        ("POST", {"Authorization": "{token}"}, 200),
        ("POST", {"Authorization": "{token}", "Origin": "{url}"}, 200),
    ],
)
def test_the_door_of_agents(shared, method, headers, status):
    values = {"token": f"Bearer {shared.token}", "join": f"Bearer {shared.join_token}", "url": shared.url}
    filled = {name: value.format_map(values) for name, value in headers.items()}
    answer = shared.anonymous(**ACCEPT, **filled).request(method, "/mcp", json=LIST)
    assert answer.status_code == status, answer.text


def test_a_browsers_cookie_opens_nothing(shared):
    person(shared.service, "bea", Role.MEMBER)
    answer = browser_of(shared, "bea").post("/mcp", json=LIST, headers={**ACCEPT, "Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 403
    assert "access token" in answer.text


def test_a_body_has_a_limit(shared):
    answer = shared.anonymous(**ACCEPT, **shared.bearer).post("/mcp", json=LIST | {"params": {"x": "y" * 70_000}})
    assert answer.status_code == 413
