"""Changes of what belongs to somebody beside runs: sweeps, studies, alerts, links, views; each is checked first."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from dashboard.security.guard.policy import check_object
from dashboard.service.service import Service
from db import acting
from db.alerts import alerts, events
from db.alerts.alerts import AlertView
from db.exceptions import NoSuchRun
from db.people.ownership import ObjectKind, owned_run
from db.runs import shared_links
from db.runs.shared_links import LinkView
from db.scaling import studies
from db.search import saved_views
from db.sweeps import sweeps
from domain.people.rights import Denied, Rights
from domain.people.roles import Action
from domain.search.parser import NamedView


def stop_sweep(service: Service, sweep_id: str) -> None:
    """Ask a sweep to end, with its live trials. Raises NoSuchSweep, Hidden, Denied."""
    _check(service, ObjectKind.SWEEP, sweep_id, Action.STOP)
    sweeps.request_stop(service.store, sweep_id, service.clock())


def stop_study(service: Service, study_id: str) -> None:
    """Ask a scaling study to end, with its live run. Raises NoSuchStudy, Hidden, Denied."""
    _check(service, ObjectKind.STUDY, study_id, Action.STOP)
    studies.request_stop(service.store, study_id, service.clock())


def stop_launched(service: Service, rights: Rights, project: str, run_id: str, why: str | None = None) -> None:
    """Stop a run that a sweep or study launched in a project, even if the person with these rights may not any more.

    A run that was moved elsewhere is stopped only if they may act on it there; one that was deleted has ended."""
    run = owned_run(service.store, run_id)
    if run is not None and (run.project == project or rights.may(Action.ACT, run.project, run.by)):
        with suppress(NoSuchRun):
            service.stop(run_id, why)


def test_alert(service: Service, alert_id: str) -> None:
    """Have a test message sent. Raises NoSuchAlert, Hidden, Denied."""
    _check(service, ObjectKind.ALERT, alert_id)
    alerts.alert(service.store, alert_id)
    events.record_test(service.store, alert_id, service.clock())


def remove_alert(service: Service, alert_id: str) -> AlertView:
    """Remove an alert; returns its last view. Raises NoSuchAlert, Hidden, Denied."""
    _check(service, ObjectKind.ALERT, alert_id, Action.STOP)
    return alerts.remove(service.store, alert_id)


def share(service: Service, runs: Sequence[str], days: int) -> tuple[LinkView, str]:
    """Make a link for readers to runs that one may act on; returns its token too.

    Raises InvalidRequest, NoSuchRun, Denied."""
    return shared_links.make(service.store, runs, days, service.clock())


def revoke_link(service: Service, link_id: str) -> LinkView:
    """End a link at once. Raises NoSuchLink, Hidden, Denied."""
    _check(service, ObjectKind.LINK, link_id, Action.STOP)
    return shared_links.revoke(service.store, link_id, service.clock())


def save_view(service: Service, view: NamedView) -> None:
    """Save a view instead of an earlier one of its name. Raises InvalidRequest, Denied."""
    _check_view(service, view.name, "change")
    saved_views.save(service.store, view, service.clock())


def forget_view(service: Service, name: str) -> None:
    """Delete a view; one that is not there stays so. Raises Denied."""
    _check_view(service, name, "delete")
    saved_views.forget(service.store, name)


def _check(service: Service, kind: ObjectKind, object_id: str, action: Action = Action.ACT) -> None:
    check_object(service.store, acting.rights(), action, kind, object_id)


def _check_view(service: Service, name: str, act: str) -> None:
    rights, maker = acting.rights(), saved_views.maker(service.store, name)
    is_admin = rights.may(Action.OPERATE, None)
    if maker is not None and maker != rights.by and not is_admin:
        raise Denied(f"The view {name!r} is {maker}'s: only they and an admin may {act} it. Save it by another name.")
