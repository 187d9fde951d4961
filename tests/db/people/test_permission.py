"""Changes of objects are judged in the transaction that writes; to those who may not see one, it is absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from db import acting
from db.alerts import alerts, events
from db.engine import Store
from db.exceptions import NoSuch
from db.nodes.node_reports import register_node
from db.people import accounts, projects, users
from db.people.ownership import ObjectKind
from db.people.permission import permit
from db.runs import run_requests, shared_links
from db.search import saved_views
from db.studies import studies
from domain.people.rights import Denied, rights_of_owner
from domain.people.roles import Action, Role
from domain.search.parser import NamedView
from domain.spec import RunSpec
from domain.sweeps import SweepPlan
from tests.db.cluster import facts
from tests.db.people.test_accounts import joined

pytestmark = pytest.mark.both_stores
SPEC = RunSpec(target="image_classifier", gpus_per_node=1, project="vision")
PLAN = SweepPlan.model_validate({"parameters": {"lr": {"values": [0.1]}}, "metric": "loss"})
ABSENT = "zzzzzzzzzz"
MAKE: dict[ObjectKind, Callable[[Store], str]] = {
    ObjectKind.RUN: lambda store: run_requests.submit(store, SPEC, 2.0),
    ObjectKind.STUDY: lambda store: studies.create(store, SPEC, PLAN, 2.0),
    ObjectKind.ALERT: lambda store: alerts.create(store, "failed", "browser", None, 2.0, project="vision"),
    ObjectKind.LINK: lambda store: shared_links.make(store, [run_requests.submit(store, SPEC, 2.0)], 7, 2.0)[0].id,
}
CHANGE: dict[ObjectKind, Callable[[Store, str], object]] = {
    ObjectKind.RUN: lambda store, run_id: run_requests.request_stop(store, run_id, 3.0),
    ObjectKind.STUDY: lambda store, study_id: studies.request_stop(store, study_id, 3.0),
    ObjectKind.ALERT: alerts.remove,
    ObjectKind.LINK: lambda store, link_id: shared_links.revoke(store, link_id, 3.0),
}


@pytest.fixture
def lab(store: Store) -> Store:
    """A node, and two members of one project."""
    register_node(store, facts(), None, 1.0)
    for name in ("ana", "ben"):
        joined(store, name, Role.MEMBER)
        with store.write() as session:
            accounts.set_membership(session, name, "vision", Role.MEMBER)
    return store


def person(store: Store, name: str):
    rights = users.rights_of(store, name)
    assert rights is not None
    return acting.acting(rights)


def made_by_ana(store: Store, kind: ObjectKind) -> str:
    with person(store, "ana"):
        return MAKE[kind](store)


def hide_from_ben(store: Store) -> None:
    with acting.acting(rights_of_owner()):
        projects.set_privacy(store, "vision", True, 2.5)
    with store.write() as session:
        accounts.set_membership(session, "ben", "vision", None)


@pytest.mark.parametrize("kind", MAKE)
def test_whose_it_is_and_who_manages_may_change_it_and_others_not(lab: Store, kind: ObjectKind) -> None:
    object_id = made_by_ana(lab, kind)
    with person(lab, "ben"), pytest.raises(Denied, match="belongs to ana"):
        CHANGE[kind](lab, object_id)
    with person(lab, "ana"):
        CHANGE[kind](lab, object_id)


@pytest.mark.parametrize("kind", MAKE)
def test_hidden_is_answered_as_absent_by_whoever_judges(lab: Store, kind: ObjectKind) -> None:
    object_id = made_by_ana(lab, kind)
    hide_from_ben(lab)
    with person(lab, "ben"):
        for judge in (lambda one: CHANGE[kind](lab, one), lambda one: seen(lab, kind, one)):
            answers = {one: refusal(judge, one) for one in (object_id, ABSENT)}
            assert answers[object_id] == answers[ABSENT], "only the id differs"


def seen(store: Store, kind: ObjectKind, object_id: str) -> None:
    """Judge a request that is only to see it, as the door of a route does."""
    with store.read() as session:
        permit(session, Action.SEE, kind, object_id)


def refusal(judge: Callable[[str], object], object_id: str) -> tuple[type[Exception], str]:
    with pytest.raises(NoSuch) as refused:
        judge(object_id)
    return refused.type, str(refused.value).replace(object_id, "ID")


def test_test_message_of_an_alert_is_for_those_who_may_act_on_it(lab: Store) -> None:
    alert_id = made_by_ana(lab, ObjectKind.ALERT)
    with person(lab, "ben"), pytest.raises(Denied):
        events.record_test(lab, alert_id, 3.0)
    with person(lab, "ana"):
        events.record_test(lab, alert_id, 3.0)
        assert alerts.alert(lab, alert_id).waiting == 1
        with pytest.raises(NoSuch):
            events.record_test(lab, ABSENT, 3.0)


def test_saved_view_is_changed_by_its_maker_alone(lab: Store) -> None:
    view = NamedView(name="mine", filter="state:running")
    with person(lab, "ana"):
        saved_views.save(lab, view, 2.0)
    with person(lab, "ben"):
        for change in (lambda: saved_views.save(lab, view, 3.0), lambda: saved_views.forget(lab, "mine")):
            with pytest.raises(Denied, match="The view 'mine' is ana's"):
                change()
    with person(lab, "ana"):
        saved_views.forget(lab, "mine")
        assert saved_views.saved(lab) == []
