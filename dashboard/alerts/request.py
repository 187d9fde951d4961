"""Set an alert as a person requests it, and show alerts without their secrets."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dashboard.alerts.acting import check_rate
from dashboard.alerts.outbox import Sender, new_secret
from dashboard.errors import Rejection
from dashboard.service.service import Service
from db import acting
from db.alerts import actions, alerts
from db.alerts.alerts import AlertView
from domain.alerts.rules import Act, Trigger, action, parse_rule
from domain.alerts.targets import BROWSER, check_target, masked_target
from domain.people.references import Named, Reference
from domain.people.rights import Denied
from domain.people.roles import Action
from domain.requests.errors import InvalidRequest


class AlertRequest(BaseModel):
    """A rule and the address of its messages."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    rule: Annotated[str, Field(max_length=200)]
    """failed, finished, hung, loss-nan, waits=30m, disk-full=2h, idle-gpu=30m, quarantine, spike, no-improvement=STEPS.

    The last two take `:SERIES`."""
    target: str
    """An https address for a signed webhook, any address of Apprise, or `browser`."""
    project: Annotated[str, Field(max_length=200), Reference(Named.PROJECT, Action.ADD)] | None = None
    """Only runs of this project."""
    run: Annotated[str, Reference(Named.RUN)] | None = None
    """Only this run."""
    act: Act | None = None
    """What the rule does to the run: end it, or roll it back to its last checkpoint before; null: it only tells."""
    lr_factor: float | None = None
    """Of the learning rate after a rollback; null: 0.5."""

    @field_validator("target", mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if not isinstance(value, str):
            raise ValueError("must be text")  # pydantic's own message repeats the value, which may be secret
        return value


def create(service: Service, request: AlertRequest) -> dict[str, Any]:
    """Store an alert; return its document, with the secret of a webhook.

    Raises InvalidRequest, Rejection, NoSuchRun."""
    rule, target = request.rule.strip(), request.target.strip()
    parsed = parse_rule(rule)
    if parsed.condition == Trigger.QUARANTINE and (request.run or request.project):
        raise InvalidRequest("rule", "rule: quarantine is about hardware; it cannot be restricted to a run or project.")
    chosen = action(parsed, request.act, request.lr_factor)
    _check_rights(service, request)
    secret = check_address(service, target)
    if request.run is not None:
        spec = actions.spec_of(service.store, request.run)
        if spec and chosen:
            check_rate(spec, chosen)
    now = service.clock()
    alert_id = alerts.create(service.store, rule, target, secret, now, request.project, request.run, chosen)
    return document(alerts.alert(service.store, alert_id)) | {"secret": secret}


def _check_rights(service: Service, request: AlertRequest) -> None:
    """Check that the actor may set the alert; that it may act on its run is checked where it is stored.

    Raises NoSuchRun, Denied."""
    rights = acting.rights()
    service.references.check_request(request)
    if request.act is not None and (refusal := rights.refusal_anywhere(Action.ACT)) is not None:
        raise Denied(refusal)  # it acts later, when the token with which it was set no longer counts
    if rights.only_project is not None and request.run is None and request.project is None:
        raise Denied(f"This token is for project {rights.only_project} alone: name it as the alert's project.")


def check_address(service: Service, target: str) -> str | None:
    """Check a target; return the secret that a new alert's messages are signed with, None unless it is a webhook.

    Raises InvalidRequest, Rejection."""
    check_target(target)
    is_webhook = target != BROWSER and _kind(service, target) == "webhook"
    return new_secret() if is_webhook else None


def tell_of_end(service: Service, run_id: str, target: str, secret: str | None) -> str:
    """Tell an address, which was checked, when a run fails or finishes; return the id of one alert.

    Raises NoSuchRun."""
    store, now = service.store, service.clock()
    alerts.create(store, Trigger.FAILED, target, secret, now, run_id=run_id)
    return alerts.create(store, Trigger.FINISHED, target, secret, now, run_id=run_id)


def addresses(service: Service) -> dict[str, str]:
    """The addresses of one's own alerts, without their secrets: the first alert's id of each, and what may be shown.

    The browser is none: it is there without an alert."""
    first: dict[str, str] = {}
    by = acting.rights().by
    for alert in alerts.alerts(service.store):
        if alert.target != BROWSER and (by is None or alert.by == by):
            first.setdefault(alert.target, alert.id)
    shown = {alert_id: masked_target(target) for target, alert_id in first.items()}
    several = {text for text in shown.values() if list(shown.values()).count(text) > 1}
    return {key: f"{text} (as alert {key})" if text in several else text for key, text in shown.items()}


def document(alert: AlertView) -> dict[str, Any]:
    """An alert as people may see it: without its secrets."""
    return {
        "id": alert.id,
        "rule": alert.rule,
        "target": masked_target(alert.target),
        "last_sent_at": alert.last_sent_at,
        "project": alert.project,
        "run": alert.run_id,
        "act": alert.act,
        "lr_factor": alert.lr_factor,
        "by": alert.by,
        "created_at": alert.created_at,
        "waiting": alert.waiting,
        "problem": alert.problem,
    }


def _kind(service: Service, target: str) -> str:
    """webhook or apprise. Raises InvalidRequest, Rejection."""
    result = Sender(service.settings.alert_private_targets).run({"action": "check", "target": target})
    if result is None:
        raise Rejection(503, "The target could not be checked in time; try again.", "target")
    if problem := result.get("problem"):
        raise InvalidRequest("target", problem)
    return result["kind"]
