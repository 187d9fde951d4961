"""Act on runs that meet an alert's rule: end them, or roll them back with a lower learning rate."""

from __future__ import annotations

import logging

from dashboard.planning.wiring import Wiring
from dashboard.script_reader import targets
from dashboard.service.service import Service
from db import acting
from db.alerts import actions, run_facts
from db.alerts.alerts import AlertView
from domain.alerts.judgement import RunEvent
from domain.alerts.rules import Act, AlertAction, RateChange, Trigger
from domain.launch.plan import program_name
from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec
from domain.text.formats import number

log = logging.getLogger("rankzero")


def act(service: Service, alert: AlertView, event: RunEvent, now: float) -> None:
    """Record an event of an alert that acts, and do it; nothing where it is recorded already."""
    store, run_id = service.store, event.run_id
    if run_id is None or event.fence is None or actions.is_recorded(store, alert.id, event.key):
        return
    good, rate = event.good, RateChange("")
    with acting.acting(service.identities.acting_for(alert.by, f"alert {alert.id}")):
        if alert.act == Act.ROLLBACK:
            spec = actions.spec_of(store, run_id)
            rate = rate_change(spec, alert.lr_factor or 1.0) if spec else rate
            is_nan = alert.rule == Trigger.LOSS_NAN
            good = run_facts.last_good(store, event.fence) if is_nan else good
        is_acted = actions.carry_out(store, alert, event, good, rate, now)
    if is_acted:
        log.info("alert %s acted on run %s: %s", alert.id, run_id, alert.act)
        service.hub.desired_state_of_runs_changed([run_id])
        service.run_changed(run_id)


def rate_change(spec: RunSpec, factor: float) -> RateChange:
    """Change the learning rate of a spec by a factor, as far as anything passes it to the program."""
    if factor == 1.0:
        return RateChange("with the same learning rate")
    wiring = Wiring(spec, targets.script_of(spec))
    rate = wiring.rate()
    if rate is None:
        return RateChange(f"with the same learning rate, because no known option passes it to {program_name(spec)}")
    wiring.set_rate(rate * factor)
    words = f"with the learning rate {number(rate * factor)} instead of {number(rate)}"
    return RateChange(words, wiring.changes)


def check_rate(spec: RunSpec, action: AlertAction) -> None:
    """Raise InvalidRequest where the learning rate of the one run that an alert is about cannot be changed."""
    if action.act == Act.ROLLBACK and action.lr_factor != 1.0 and not rate_change(spec, action.lr_factor).changes:
        raise InvalidRequest(
            "lr_factor",
            f"lr_factor: no known option passes a learning rate to {program_name(spec)}. Launch it with {{lr}} "
            "in its arguments, or set the alert with the factor 1: it then goes back with the same rate.",
        )
