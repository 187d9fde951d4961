"""Private projects and roles where no single route shows them: channels, passes, links, sweeps, alerts, the queue."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import pytest
from sqlalchemy import delete
from websockets.exceptions import ConnectionClosed

from dashboard.api.runs.live import NO_ROLE
from db.alerts import alerts, events
from db.exceptions import NoSuch
from db.models import Membership, User
from db.runs import shared_links
from db.search import saved_views
from db.studies import studies
from domain.alerts.rules import Act, AlertAction
from domain.people.rights import Denied
from domain.scaling.plan import ScalingPlan
from domain.sweeps import SweepPlan
from tests.dashboard.persons import browser_of
from tests.dashboard.running import Running
from tests.dashboard.security.lab import OPEN, PEOPLE, SCALING, SECRET, Lab, Person, Things
from tests.end_to_end.product import wait_for

MIA, VIC = PEOPLE["member, whose the objects are"], PEOPLE["viewer"]
LOU = PEOPLE["who launched before it was private"]
SAM, OWNER = PEOPLE["member of the private project"], PEOPLE["owner"]


@pytest.fixture
def lab(dashboard: Running) -> Lab:
    return Lab(dashboard)


def private(lab: Lab) -> Things:
    return next(things for things in lab.things if things.project == SECRET)


def open_things(lab: Lab, by: str) -> Things:
    return next(things for things in lab.things if things.by == by)


def leave(lab: Lab, name: str, project: str = SECRET) -> None:
    """Take a person's role in a project."""
    with lab.service.store.write() as session:
        session.execute(delete(Membership).where(Membership.user == name, Membership.project == project))
    lab.service.identities.forget()


def demote(lab: Lab, name: str, role: str | None) -> None:
    with lab.service.store.write() as session:
        session.get_one(User, name).role = role
    lab.service.identities.forget()


def post(lab: Lab, person: Person, path: str, **body: Any) -> httpx2.Response:
    return lab.dashboard.http.post(path, json=body, headers=lab.headers(person))


def test_live_channel_closes_when_its_person_leaves_the_project(lab: Lab) -> None:
    with lab.dashboard.connect(f"/api/live?run={private(lab).run}", lab.headers(SAM)) as socket:
        assert json.loads(socket.recv(timeout=60))["type"] == "run"
        leave(lab, "sam")
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                socket.recv(timeout=60)
    assert closed.value.rcvd is not None and closed.value.rcvd.code == NO_ROLE


def test_pass_of_a_sandboxed_page_ends_with_the_role_of_its_person(lab: Lab) -> None:
    run, http = private(lab).run, lab.dashboard.anonymous()
    page = lab.dashboard.http.get(f"/perfetto/{run}/", headers=lab.headers(SAM))
    address = f"/perfetto/{run}/" + re.search(r'src="([^"]+)"', page.text)[1]  # type: ignore[index]
    assert f"There is no run '{run}'" not in http.get(address).text
    other = address.replace(run, open_things(lab, "mia").run)
    assert http.get(other).status_code == 401
    leave(lab, "sam")
    assert (http.get(address).status_code, f"There is no run '{run}'" in http.get(address).text) == (404, True)
    assert http.get(address.replace("perfetto", "tensorboard")).status_code == 401


def test_pass_of_a_sandboxed_page_ends_with_the_session_that_it_was_given_to(lab: Lab) -> None:
    run, http = private(lab).run, lab.dashboard.anonymous()
    browsers = [browser_of(lab.dashboard, OWNER.name) for _ in range(2)]
    pages = [browser.get(f"/perfetto/{run}/").text for browser in browsers]
    first, second = (f"/perfetto/{run}/" + re.search(r'src="([^"]+)"', page)[1] for page in pages)  # type: ignore[index]
    assert 401 not in (http.get(first).status_code, http.get(second).status_code)
    assert browsers[0].post("/logout").status_code == 204
    assert http.get(first).status_code == 401 and http.get(second).status_code != 401


def test_link_shows_its_run_to_whoever_has_it_and_outlives_its_maker(lab: Lab) -> None:
    things, visitor = private(lab), lab.dashboard.anonymous()
    assert "sam-trains" in visitor.get(f"/shared/{things.shared}").text
    leave(lab, "sam")
    assert visitor.get(f"/shared/{things.shared}").status_code == 200
    listed = lab.dashboard.http.get("/api/shared-links", headers=lab.headers(PEOPLE["admin of the private project"]))
    assert things.link in {link["id"] for link in listed.json()}
    revoked = lab.dashboard.http.delete(f"/api/shared-links/{things.link}", headers=lab.headers(OWNER))
    assert revoked.status_code == 200 and visitor.get(f"/shared/{things.shared}").status_code == 410


def test_actions_on_many_runs_refuse_each_that_is_not_ones_own(lab: Lab) -> None:
    own, foreign, hidden = open_things(lab, "mia").run, open_things(lab, "max").run, private(lab).run
    begun = post(lab, MIA, "/api/bulk-actions", action="tag", tag="t", runs=[own, foreign, hidden]).json()

    def ended() -> Any:
        shown = lab.dashboard.http.get(f"/api/bulk-actions/{begun['id']}", headers=lab.headers(MIA)).json()
        return shown if shown["state"] == "done" else None

    wait_for(ended, "the action to end")
    action = ended()
    assert action["changed"] == [own]
    assert [(one["run"], one["name"], one["message"]) for one in action["refused"]] == [
        (foreign, "max-trains", f"It belongs to max: only they and an admin of project {OPEN} may act on this."),
        (hidden, hidden, f"There is no run {hidden!r}."),
    ]


def test_moving_a_run_needs_the_role_in_both_projects(lab: Lab) -> None:
    run = open_things(lab, "mia").run

    def moved(person: Person, run: str, project: str) -> int:
        headers = lab.headers(person)
        return lab.dashboard.http.patch(f"/api/runs/{run}", json={"project": project}, headers=headers).status_code

    assert moved(MIA, run, SECRET) == 403
    assert moved(SAM, private(lab).run, OPEN) == 403
    assert moved(MIA, run, "elsewhere") == 200
    assert moved(VIC, run, OPEN) == 403


def test_nobody_resumes_from_the_checkpoint_of_a_hidden_run(lab: Lab) -> None:
    spec = {"target": "image_classifier", "gpus_per_node": 1, "resume": private(lab).run}
    refused = post(lab, MIA, "/api/runs", **spec)
    missing = post(lab, MIA, "/api/runs", **spec | {"resume": "zzzzzzzzzz"})
    assert refused.status_code == missing.status_code == 422
    assert refused.text.replace(private(lab).run, "zzzzzzzzzz") == missing.text
    allowed = post(lab, OWNER, "/api/runs", **spec)
    assert allowed.status_code == 201, allowed.text


def test_sweep_and_study_end_when_their_person_may_no_longer_launch(lab: Lab) -> None:
    things, store, now = open_things(lab, "mia"), lab.service.store, lab.service.clock()
    plan = SweepPlan.model_validate({"parameters": {"lr": {"values": [0.1]}}, "metric": "loss"})
    with lab.acting(things):
        demote(lab, "mia", "viewer")  # before the dashboard itself could launch what follows
        sweep_id = studies.create(store, lab.spec(OPEN), plan, now)
        study_id = studies.create(store, lab.spec(OPEN), SCALING, now)
    launched = len(lab.dashboard.http.get("/api/runs").json())
    for one, kind in ((sweep_id, SweepPlan), (study_id, ScalingPlan)):
        wait_for(lambda one=one, kind=kind: studies.study(store, one, kind).ended_at, "the study to end")
        assert studies.study(store, one, kind).message == "Ended: mia may no longer launch in this project."
    assert len(lab.dashboard.http.get("/api/runs").json()) == launched


def test_alert_acts_only_on_runs_that_its_person_may_act_on(lab: Lab) -> None:
    things, now = open_things(lab, "mia"), lab.service.clock()
    with lab.acting(things):
        alerts.create(lab.service.store, "waits=1s", "browser", None, now - 9, action=AlertAction(Act.END, None))
    live = [one.live for one in lab.things]
    for run in live:
        queue(lab, run, now - 60)

    def ended() -> list[str]:
        return [run for run in live if lab.dashboard.run(run)["stop_requested_at"] is not None]

    wait_for(ended, "the alert to end a run")
    assert ended() == [things.live]
    history = lab.dashboard.http.get(f"/api/runs/{things.live}/history").json()
    assert {line["by"] for line in history if (line["via"] or "").startswith("alert ")} == {"mia"}


def queue(lab: Lab, run: str, since: float) -> None:
    """Let a run wait since a time, with devices that nobody gives it."""
    from db.lookups import latest_attempt
    from db.models import Task

    with lab.service.store.write() as session:
        attempt = latest_attempt(session, run)
        session.execute(delete(Task).where(Task.fence == attempt.fence))
        attempt.state, attempt.created_at, attempt.not_before = "queued", since, since + 1e9


def test_alerts_tell_nobody_of_runs_that_they_may_not_see(lab: Lab) -> None:
    now = lab.service.clock()
    told = {}
    for things in lab.things:
        with lab.acting(things):
            alert = alerts.create(lab.service.store, "waits=1s", "browser", None, now - 9)
        told[things.by] = alert
        queue(lab, things.live, now - 60)

    def notices(person: Person) -> set[tuple[str, str]]:
        headers = lab.headers(person)
        shown = lab.dashboard.http.get("/api/notifications?after=0", headers=headers).json()["notifications"]
        return {(notice["alert"], notice["run"]) for notice in shown}

    wait_for(lambda: notices(SAM), "the alerts, which are judged together")
    own, other, hidden, launched_before = (things.live for things in lab.things)
    assert notices(MIA) == {(told["mia"], own), (told["mia"], other)}
    assert notices(SAM) == {(told["sam"], hidden), (told["sam"], launched_before)}
    assert notices(LOU) == {(told["lou"], own), (told["lou"], other), (told["lou"], launched_before)}
    assert notices(VIC) == set()


def test_devices_of_a_private_run_are_in_use_and_no_more(lab: Lab) -> None:
    viewer, insider = (lab.headers(PEOPLE[who]) for who in ("viewer", "member of the private project"))
    (seen,) = lab.dashboard.http.get("/api/nodes", headers=viewer).json()
    (known,) = lab.dashboard.http.get("/api/nodes", headers=insider).json()
    live = {one.live for one in lab.things if one.project == SECRET}
    used = [device for device in known["devices"] if device["run_id"] in live]
    hidden = [device for device in seen["devices"] if device["private"]]
    assert [device["id"] for device in hidden] == [device["id"] for device in used] != []
    assert (hidden[0]["run_id"], hidden[0]["attempt"], hidden[0]["rank"]) == (None, None, None)
    assert seen["free"] == known["free"]
    picture = lab.dashboard.http.get("/api/cluster", headers=viewer).json()
    assert "in use by 2 runs and private ones" in picture["summary"]
    insiders = lab.dashboard.http.get("/api/cluster", headers=insider).json()
    assert "in use by 2 runs and private ones" in insiders["summary"]


def test_queue_names_no_private_run(lab: Lab) -> None:
    lab.dashboard.node("n1", slots=1)
    there = {"on_nodes": ["n1"]}
    with lab.acting(private(lab)):
        lab.service.launch(lab.spec(SECRET, "moon-lander").model_copy(update=there))
    with lab.acting(open_things(lab, "mia")):
        waiting = lab.service.launch(lab.spec(OPEN, "waits-for-it").model_copy(update=there))
    sentence = lab.dashboard.run(waiting)["waiting_for"]
    assert "another run" in sentence and "moon-lander" not in sentence


def test_queue_names_guests_no_run_that_they_may_not_see(lab: Lab) -> None:
    lab.dashboard.node("n1", slots=1)
    lab.dashboard.node("n2", slots=1)
    names = {OPEN: "sun on n1 ends never", SECRET: "moon"}
    waiting = {}
    for project, node in ((OPEN, "n1"), (SECRET, "n2")):
        there = {"on_nodes": [node]}
        with lab.acting(open_things(lab, "mia") if project == OPEN else private(lab)):
            lab.service.launch(lab.spec(project, names[project]).model_copy(update=there))
        with lab.acting(private(lab)):
            waiting[project] = lab.service.launch(lab.spec(SECRET, f"waits on {node}").model_copy(update=there))
    sam, owner = (lab.dashboard.anonymous(**lab.headers(person)) for person in (SAM, OWNER))
    for run in waiting.values():
        sentence = sam.get(f"/api/runs/{run}").json()["waiting_for"]
        listed = {one["id"]: one["waiting_for"] for one in sam.get("/api/runs").json()}
        assert "another run on n" in sentence and "sun" not in sentence and listed[run] == sentence
    assert names[OPEN] in owner.get(f"/api/runs/{waiting[OPEN]}").json()["waiting_for"]


def test_pages_change_nothing_of_others_either(lab: Lab) -> None:
    foreign, hidden = open_things(lab, "max"), private(lab)
    store, now = lab.service.store, lab.service.clock()
    for things, refusal in ((foreign, Denied), (hidden, NoSuch)):
        with lab.acting(open_things(lab, "mia")):
            for act in (
                lambda things=things: studies.request_stop(store, things.sweep, now),
                lambda things=things: studies.request_stop(store, things.study, now),
                lambda things=things: events.record_test(store, things.alert, now),
                lambda things=things: alerts.remove(store, things.alert),
                lambda things=things: shared_links.revoke(store, things.link, now),
                lambda things=things: shared_links.make(store, [things.run], 1, now),
            ):
                with pytest.raises(refusal):
                    act()
            with pytest.raises(Denied):
                saved_views.forget(store, things.view)


def test_a_comparison_is_hidden_with_either_checkpoint(lab: Lab) -> None:
    """The tensors of both are named in its result."""
    own, hidden = open_things(lab, "mia"), private(lab)
    with lab.acting(own):
        refused = post(lab, MIA, f"/api/checkpoints/{own.checkpoint}/diff", other=int(hidden.checkpoint))
    assert refused.status_code == 404
    compared = post(lab, OWNER, f"/api/checkpoints/{own.checkpoint}/diff", other=int(hidden.checkpoint)).json()

    def seen_by(person: Person) -> tuple[int, bool]:
        shown = lab.dashboard.http.get(f"/api/checkpoint-tasks/{compared['id']}", headers=lab.headers(person))
        tasks = lab.dashboard.http.get(f"/api/runs/{own.run}/checkpoint-tasks", headers=lab.headers(person)).json()
        return shown.status_code, compared["id"] in [task["id"] for task in tasks]

    assert seen_by(MIA) == (404, False)
    assert seen_by(OWNER) == (200, True)
