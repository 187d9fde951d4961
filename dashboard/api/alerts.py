"""Alerts: set, list, test and remove them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from dashboard.alerts.request import AlertRequest, create, document
from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.json_responses import answer
from db.alerts import alerts, events
from domain.alerts.message import plain

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["alerts"])


class ShownNotices(BaseModel):
    """What a tab has shown."""

    model_config = ConfigDict(extra="forbid")

    ids: Annotated[list[int], Field(max_length=events.MOST)]


@router.get("/alerts")
def list_alerts(service: TheService) -> Response:
    """All alerts, oldest first, without their secrets."""
    return answer([document(alert) for alert in alerts.alerts(service.store)])


@router.post("/alerts", status_code=201)
def add_alert(service: TheService, request: AlertRequest) -> Response:
    """Set an alert. Only this answer contains the `secret` that signs a webhook."""
    added = create(service, request)
    return answer(added, 201, {"Location": f"/api/alerts/{added['id']}"})


@router.get("/alerts/{alert_id}")
def show_alert(service: TheService, alert_id: str) -> Response:
    """One alert, and how far its messages are."""
    return answer(document(alerts.alert(service.store, alert_id)))


@router.post("/alerts/{alert_id}/test", status_code=202)
def test_alert(service: TheService, alert_id: str) -> Response:
    """Have a test message sent; `waiting` is 0 once it is sent or abandoned."""
    events.record_test(service.store, alert_id, service.clock())
    return answer(document(alerts.alert(service.store, alert_id)), 202)


@router.delete("/alerts/{alert_id}")
def remove_alert(service: TheService, alert_id: str) -> Response:
    """Remove an alert; waiting messages are not sent."""
    return answer(document(alerts.remove(service.store, alert_id)))


@router.get("/notifications")
def list_notifications(service: TheService, after: int | None = None) -> Response:
    """Notifications for open tabs of the dashboard: those that none has shown yet, and those after an id."""
    newest, notifications = events.browser_notifications(service.store, after)
    shown = [
        {"id": one.id, "alert": one.alert, "rule": one.rule, "run": one.run_id, "at": one.at,
         "sentence": plain(one.sentence)}
        for one in notifications
    ]  # fmt: skip
    return answer({"newest": newest, "notifications": shown})


@router.post("/notifications/shown", status_code=204)
def notifications_shown(service: TheService, request: ShownNotices) -> Response:
    """Note that a tab has shown notifications."""
    events.shown(service.store, request.ids, service.clock())
    return Response(status_code=204)
