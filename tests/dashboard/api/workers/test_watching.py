"""A process that watches: its place over HTTP, its guest's work as any worker's, and what people may do from here."""

from __future__ import annotations

import pytest

from domain.messages import TaskReport
from domain.watching.messages import WatchAnswer
from tests.dashboard.running import Running
from tests.db.watched_hosts import watch_request
from worker.session.client import Client, TaskRef
from worker.session.failures import AttemptSuperseded, RequestRefused


def place(dashboard: Running, **more) -> tuple[WatchAnswer, Client]:
    """The answer to a process that watches, and the client of its guest."""
    body = watch_request(started_at=dashboard.service.clock() - 5.0, **more).model_dump(mode="json")
    answered = dashboard.http.post("/api/watch", json=body)
    assert answered.status_code == 200, answered.text
    answer = WatchAnswer.model_validate(answered.json())
    return answer, dashboard.client(answer.node_token)


def task_of(answer: WatchAnswer) -> TaskRef:
    assignment = answer.assignment
    assert assignment is not None
    return TaskRef(assignment.fence, assignment.node_rank, assignment.label)


def test_a_guest_works_with_the_token_of_its_place(dashboard):
    answer, guest = place(dashboard, name="resnet")
    assert (answer.place, answer.url) == ("joined", f"/run?id={answer.run_id}") and answer.assignment
    assert answer.store == dashboard.service.lineage.identity
    (assignment,) = guest.desired_state(None, 0).assignments
    assert assignment.is_of(answer.assignment) and assignment.spec.workdir == "/home/mara/vision"
    guest.report(task_of(answer), TaskReport(state="running"))
    run = dashboard.run(answer.run_id)
    assert (run["state"], run["watched"]["host"], run["watched"]["processes"]) == ("running", "gpu-3", 1)
    assert run["watched"]["again"].startswith("cd /home/mara/vision && rankzero watch --name resnet -- torchrun")
    assert dashboard.http.get("/api/nodes").json() == []
    assert [one["id"] for one in dashboard.http.get("/api/runs?search=watched:yes").json()] == [answer.run_id]


def test_a_guest_registers_with_its_own_token_and_no_other(dashboard):
    answer, guest = place(dashboard)
    assert answer.assignment is not None
    facts = watch_request().facts.model_copy(update={"pool": f"watched:{answer.assignment.fence}"})
    guest.register(facts, answer.node_id, answer.node_token)
    (assignment,) = guest.desired_state(None, 0).assignments
    assert assignment.is_of(answer.assignment)
    with pytest.raises(RequestRefused, match="A guest joins with the token"):
        dashboard.client().register(facts, None, dashboard.join_token)


def test_a_guest_may_leave_when_its_end_is_here(dashboard):
    answer, guest = place(dashboard)
    assert not guest.desired_state(None, 0).leave
    guest.report(task_of(answer), TaskReport(state="succeeded", exit_code=0))
    assert guest.desired_state(None, 0).leave
    dashboard.service.guests.sweep()
    assert dashboard.run(answer.run_id)["state"] == "succeeded"


def test_asking_again_ends_the_earlier_token(dashboard):
    first = watch_request(started_at=1.0).model_dump(mode="json")
    tokens = [dashboard.http.post("/api/watch", json=first).json()["node_token"] for _ in range(2)]
    assert dashboard.anonymous(Authorization=f"Bearer {tokens[0]}").get("/api/worker/desired?wait=0").status_code == 401
    assert dashboard.anonymous(Authorization=f"Bearer {tokens[1]}").get("/api/worker/desired?wait=0").status_code == 200


def test_another_protocol_is_refused_with_what_to_upgrade(dashboard):
    answer, _ = place(dashboard, protocol=1)
    assert answer.place == "refused" and "Upgrade the rankzero that watches" in answer.message


def test_stop_is_passed_on_unless_it_may_only_be_looked_at(dashboard):
    answer, guest = place(dashboard)
    guest.report(task_of(answer), TaskReport(state="running"))
    assert dashboard.http.post(f"/api/runs/{answer.run_id}/stop").status_code == 200
    (assignment,) = guest.desired_state(None, 0).assignments
    assert assignment.action == "stop"
    looked_at, _ = place(dashboard, look_only=True)
    refused = dashboard.http.post(f"/api/runs/{looked_at.run_id}/stop")
    assert refused.status_code == 409 and "stop it there" in refused.text


def test_what_was_watched_is_not_launched_from_here(dashboard):
    answer, guest = place(dashboard)
    guest.report(task_of(answer), TaskReport(state="failed", exit_code=1))
    resumed = dashboard.http.post(f"/api/runs/{answer.run_id}/resume")
    spec = dashboard.run(answer.run_id)["spec"]
    again = dashboard.http.post(f"/api/runs?like={answer.run_id}", json=spec)
    for refused in (resumed, again):
        assert refused.status_code == 409
        assert "cd /home/mara/vision && rankzero watch" in refused.text
    assert dashboard.http.delete(f"/api/runs/{answer.run_id}").status_code == 200


def test_a_late_report_of_an_ended_process_changes_nothing(dashboard):
    answer, guest = place(dashboard)
    guest.report(task_of(answer), TaskReport(state="succeeded", exit_code=0))
    with pytest.raises(AttemptSuperseded):
        guest.report(task_of(answer), TaskReport(state="running"))
