"""Every route has its rule, and nothing else is answered."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.routing import Route, WebSocketRoute

from dashboard.app.server import create_app
from dashboard.security.guard import policy
from dashboard.service.service import Service
from dashboard.settings import Settings


def test_every_route_has_a_rule_and_every_rule_a_route(tmp_path: Path) -> None:
    service = Service.open(Settings(data=tmp_path / "data"))
    try:
        routes = create_app(service.settings, service, with_pages=False).router.routes
    finally:
        service.close()
    judged = [route for route in routes if isinstance(route, Route | WebSocketRoute)]
    assert len(judged) == len(routes) and all(isinstance(route.app, policy.Door) for route in judged)
    there = {(route.path, method) for route in judged for method in policy.methods_of(route)}
    assert {(path, method) for path, rules in policy.RULES.items() for method in rules} - there == set()


def test_route_without_a_rule_keeps_the_application_from_starting() -> None:
    with pytest.raises(LookupError, match=r"POST /api/new has no rule in dashboard/security/guard/policy\.py"):
        policy.rule_of("/api/new", "POST")
