"""What is done to many runs at once goes on by itself, is followed by its id, and tells what was refused and freed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dashboard.service.bulk_actions import MOST_WAITING
from dashboard.service.service import Service
from domain.people.roles import Role
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import LIMIT_S, FakeNode, Running, wait_for


def begun(dashboard: Running, **request: Any) -> dict[str, Any]:
    answer = dashboard.http.post("/api/bulk-actions", json=request)
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def ended(dashboard: Running, action: dict[str, Any]) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        document = dashboard.http.get(f"/api/bulk-actions/{action['id']}").json()
        return document if document["state"] != "running" else None

    return wait_for(look, "the end of the action")


def archived(dashboard: Running) -> set[str]:
    return {run["id"] for run in dashboard.http.get("/api/runs", params={"filter": "archived:yes"}).json()}


def test_delete_tells_what_it_freed_and_what_was_refused(dashboard: Running, node: FakeNode) -> None:
    ended_run = dashboard.launch(name="ended")
    task = node.task()
    node.append(task, "logs/rank0.out", 0, 0, b"hello")
    node.store_checkpoint(task, b"weights")
    node.report(task, "succeeded")
    live = dashboard.launch(name="alive")
    action = begun(dashboard, action="delete", runs=[ended_run, live, ended_run, "nosuchrunx"])
    assert action["total"] == 3
    outcome = ended(dashboard, action)
    assert (outcome["state"], outcome["done"], outcome["changed"]) == ("done", 1, [ended_run])
    assert outcome["freed_bytes"] == len(b"hello") + len(b"weights")
    assert [(refusal["run"], refusal["name"]) for refusal in outcome["refused"]] == [
        (live, "alive"),
        ("nosuchrunx", "nosuchrunx"),
    ]
    assert "has not ended; stop it first" in outcome["refused"][0]["message"]
    assert [run["id"] for run in dashboard.http.get("/api/runs").json()] == [live]


def test_one_run_deleted_says_what_it_freed(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.append(task, "logs/rank0.out", 0, 0, b"hello")
    node.report(task, "succeeded")
    assert dashboard.http.delete(f"/api/runs/{run_id}").json()["freed_bytes"] == len(b"hello")


def test_runs_that_a_search_finds_are_tagged_archived_listed_again_and_stopped(
    dashboard: Running, node: FakeNode
) -> None:
    runs = {dashboard.launch(name="mine") for _ in range(3)}
    other = dashboard.launch(name="other")
    for request, field, value in (
        ({"action": "tag", "tag": "old"}, "tags", ["old"]),
        ({"action": "untag", "tag": "old"}, "tags", []),
        ({"action": "archive"}, "archived", True),
    ):
        outcome = ended(dashboard, begun(dashboard, filter="name:mine", **request))
        assert (outcome["done"], set(outcome["changed"]), outcome["refused"]) == (3, runs, [])
        assert all(dashboard.run(run)[field] == value for run in runs)
        assert dashboard.run(other)[field] != value or value == []
    assert archived(dashboard) == runs
    ended(dashboard, begun(dashboard, action="unarchive", runs=[*runs]))
    ended(dashboard, begun(dashboard, action="stop", runs=[*runs]))
    assert not archived(dashboard) and all(dashboard.run(run)["stop_requested_at"] for run in runs)
    assert dashboard.run(other)["stop_requested_at"] is None


def test_one_action_at_a_time_is_told_to_every_page_and_can_be_cancelled(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [dashboard.launch(name=f"run {number}") for number in range(3)]
    has_begun, may_go_on = threading.Event(), threading.Event()
    original = Service.edit

    def held(*arguments: Any) -> Any:
        has_begun.set()
        assert may_go_on.wait(LIMIT_S)
        return original(*arguments)

    def named() -> str:
        return dashboard.http.get("/api/overview").headers["rankzero-bulk-action"]

    assert named() == "none"
    monkeypatch.setattr(Service, "edit", held)
    first = begun(dashboard, action="archive", runs=runs)
    assert has_begun.wait(LIMIT_S) and named() == first["id"]
    second = begun(dashboard, action="tag", tag="late", runs=runs[:1])
    assert dashboard.http.post(f"/api/bulk-actions/{first['id']}/cancel").json()["state"] == "running"
    assert dashboard.run(runs[0])["tags"] == []
    may_go_on.set()
    outcome = ended(dashboard, first)
    assert (outcome["state"], outcome["total"], outcome["changed"]) == ("cancelled", 3, runs[:1])
    assert ended(dashboard, second)["state"] == "done" and dashboard.run(runs[0])["tags"] == ["late"]
    assert archived(dashboard) == {runs[0]} and named() == "none"
    after = dashboard.http.post(f"/api/bulk-actions/{second['id']}/cancel").json()
    assert after["state"] == "done"  # nothing was left to cancel


def test_trouble_with_one_run_holds_up_no_other(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [dashboard.launch() for _ in range(2)]
    original = Service.edit

    def broken(service: Any, run_id: str, change: Any) -> Any:
        if run_id == runs[0]:
            raise PermissionError("/data/files/7")
        return original(service, run_id, change)

    monkeypatch.setattr(Service, "edit", broken)
    outcome = ended(dashboard, begun(dashboard, action="archive", runs=runs))
    assert outcome["changed"] == runs[1:] and outcome["refused"][0]["run"] == runs[0]
    assert "/data" not in outcome["refused"][0]["message"]


@pytest.mark.parametrize(
    "request_body",
    [
        {"action": "explode", "runs": ["abcdefghij"]},
        {"action": "stop"},
        {"action": "stop", "runs": []},
        {"action": "stop", "runs": ["../../etc"]},
        {"action": "stop", "runs": ["abcdefghij\n"]},
        {"action": "stop", "runs": ["abcdefghij"], "filter": "name:x"},
        {"action": "stop", "runs": ["abcdefghij"] * 1001},
        {"action": "stop", "filter": ""},
        {"action": "stop", "filter": "name:nobody"},
        {"action": "stop", "filter": "steps>many"},
        {"action": "tag", "runs": ["abcdefghij"]},
        {"action": "tag", "runs": ["abcdefghij"], "tag": "two words"},
        {"action": "delete", "runs": ["abcdefghij"], "tag": "old"},
        {"action": "delete", "runs": ["abcdefghij"], "force": True},
    ],
)
def test_odd_requests_are_refused_in_a_sentence(dashboard: Running, request_body: dict[str, Any]) -> None:
    answer = dashboard.http.post("/api/bulk-actions", json=request_body)
    assert answer.status_code == 422 and answer.json()["detail"]["message"].endswith((".", "?"))


def test_an_action_from_before_a_restart_is_told_as_such(dashboard: Running) -> None:
    for answer in (
        dashboard.http.get("/api/bulk-actions/0000"),
        dashboard.http.post("/api/bulk-actions/0000/cancel"),
    ):
        assert answer.status_code == 404
        assert answer.json()["detail"]["message"].startswith("The server restarted meanwhile")


def test_action_ends_with_the_rights_of_who_began_it_and_is_audited_from_where(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana = browser_of(dashboard, person(dashboard.service, "ana", Role.ADMIN))
    runs = [dashboard.launch(name=f"run {number}") for number in range(2)]
    has_begun, may_go_on = threading.Event(), threading.Event()
    original = Service.stop

    def held(*arguments: Any, **more: Any) -> Any:
        outcome = original(*arguments, **more)
        has_begun.set()
        assert may_go_on.wait(LIMIT_S)
        return outcome

    monkeypatch.setattr(Service, "stop", held)
    answer = ana.post("/api/bulk-actions", json={"action": "stop", "runs": runs})
    assert answer.status_code == 202, answer.text
    assert has_begun.wait(LIMIT_S)
    dashboard.service.people.set_role("ana", "viewer")
    may_go_on.set()
    wait_for(lambda: ana.get(f"/api/bulk-actions/{answer.json()['id']}").json()["state"] != "running", "its end")
    outcome = ana.get(f"/api/bulk-actions/{answer.json()['id']}").json()
    assert outcome["changed"] == runs[:1] and "only members can" in outcome["refused"][0]["message"]
    (entry,) = (one for one in dashboard.http.get("/api/audit?by=ana").json() if one["action"] == "stopped")
    assert (entry["object"], entry["address"]) == (f"run {runs[0]}", "127.0.0.1")


def test_waiting_actions_of_one_person_keep_nobody_else_out(
    dashboard: Running, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana = browser_of(dashboard, person(dashboard.service, "ana", Role.ADMIN))
    request = {"action": "archive", "runs": [dashboard.launch()]}
    may_go_on, original = threading.Event(), Service.edit

    def held(*arguments: Any) -> Any:
        assert may_go_on.wait(LIMIT_S)
        return original(*arguments)

    monkeypatch.setattr(Service, "edit", held)
    for _ in range(MOST_WAITING):
        assert ana.post("/api/bulk-actions", json=request).status_code == 202
    refused = ana.post("/api/bulk-actions", json=request)
    assert refused.status_code == 409 and "of your actions are waiting" in refused.json()["detail"]["message"]
    assert dashboard.http.post("/api/bulk-actions", json=request).status_code == 202
    may_go_on.set()
