"""Pushes between people, the store and nodes: what is pushed, with whose secrets, with what card."""

from __future__ import annotations

from typing import Any

import pytest

from db.people import accounts
from domain.checkpoint_use.model_card import is_unedited
from domain.checkpoint_use.tasks import DONE_HERE, CheckpointTaskReport, DesiredCheckpointTask, PushDetails, TaskKind
from domain.people.roles import Role
from tests.dashboard.persons import browser_of, person
from tests.dashboard.running import FakeNode, Running
from worker.session.failures import RequestRefused

TOKEN = "hf_a-token-of-somebody"


@pytest.fixture
def saved(dashboard: Running, node: FakeNode) -> tuple[str, int]:
    """A run that has ended with a checkpoint of safetensors; its id and the checkpoint's."""
    return save(dashboard, node, "work/model.safetensors")


def save(dashboard: Running, node: FakeNode, path: str) -> tuple[str, int]:
    facts = node.facts.model_copy(update={"info": {DONE_HERE: list(TaskKind)}})
    node.client.register(facts, node.identity.node_id, node.client.token, again=True)
    run_id = dashboard.launch()
    task = node.task()
    checkpoint_id = node.store_checkpoint(task, b"weights", step=40, path=path)
    node.report(task, "succeeded", exit_code=0)
    return run_id, checkpoint_id


def set_secret(dashboard: Running, name: str = "HF_TOKEN", **more: Any) -> None:
    dashboard.http.put(f"/api/secrets/{name}", json={"value": TOKEN, **more}).raise_for_status()


def push(dashboard: Running, checkpoint_id: int, to: str = "hf:lab/digits", **more: Any) -> Any:
    return dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/push", json={"to": to, **more})


def message(answer: Any) -> str:
    return str(answer.json()["detail"]["message"])


def desired(node: FakeNode) -> DesiredCheckpointTask:
    (task,) = node.client.desired_state(None, 0).checkpoint_tasks
    return task


def details(node: FakeNode, task: DesiredCheckpointTask) -> PushDetails:
    return node.client.push_details(task)


def test_a_node_gets_target_secret_and_card_when_it_begins(dashboard, node, saved) -> None:
    set_secret(dashboard)
    run_id, checkpoint_id = saved
    answer = push(dashboard, checkpoint_id)
    assert answer.status_code == 202 and TOKEN not in answer.text
    task = desired(node)
    assert (task.kind, task.target, task.is_private) == (TaskKind.PUSH, "hf:lab/digits", True)
    assert TOKEN not in task.model_dump_json()
    given = details(node, task)
    assert given.secrets == {"HF_TOKEN": TOKEN} and TOKEN not in repr(given)
    assert given.message == f"Add step 40 of run {run_id}"
    assert is_unedited(given.card["text"]) and "| Step" not in given.card["text"] and run_id in given.card["text"]
    result = {"url": "https://hub/lab/digits", "files": 2, "bytes": 9, "sent_bytes": 7, "notes": []}
    node.client.report_checkpoint_task(task, CheckpointTaskReport(state="succeeded", result=result))
    assert dashboard.http.get(f"/api/checkpoint-tasks/{task.task_id}").json()["result"] == result


def test_what_is_not_merged_is_refused_with_the_command(dashboard, node) -> None:
    set_secret(dashboard)
    run_id, checkpoint_id = save(dashboard, node, "work/last.pt")
    refused = push(dashboard, checkpoint_id)
    assert refused.status_code == 409
    assert f"rankzero checkpoint merge {run_id} work/last.pt" in message(refused) and "--as-saved" in message(refused)
    assert push(dashboard, checkpoint_id, as_saved=True).status_code == 202
    assert desired(node).sources[0].name == "work/last.pt"


def test_a_missing_secret_is_refused_with_the_command(dashboard, node, saved) -> None:
    refused = push(dashboard, saved[1])
    assert refused.status_code == 422 and "rankzero secret set HF_TOKEN" in message(refused)
    refused = push(dashboard, saved[1], secrets=["HF_TOKEN=LAB"])
    assert "there is no secret LAB" in message(refused)


def test_a_bucket_needs_both_keys_and_uses_a_session_if_there_is_one(dashboard, node, saved) -> None:
    set_secret(dashboard, "LAB_ID")
    set_secret(dashboard, "AWS_SECRET_ACCESS_KEY")
    asked = {"to": "s3://models/digits", "secrets": ["AWS_ACCESS_KEY_ID=LAB_ID"]}
    assert push(dashboard, saved[1], **asked).status_code == 202
    assert details(node, desired(node)).secrets.keys() == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}


@pytest.mark.parametrize("to", ["https://evil.example/x", "hf:one", "s3://u@h/x", "file:///etc"])
def test_no_request_names_a_server(dashboard, node, saved, to) -> None:
    refused = push(dashboard, saved[1], to)
    assert refused.status_code == 422 and message(refused).startswith("target: must be ")


def test_a_removed_secret_is_told_to_the_node(dashboard, node, saved) -> None:
    set_secret(dashboard)
    push(dashboard, saved[1])
    dashboard.http.delete("/api/secrets/HF_TOKEN").raise_for_status()
    with pytest.raises(RequestRefused, match="was removed: set it again"):
        details(node, desired(node))


def test_only_its_node_gets_the_secret_and_only_until_it_has_ended(dashboard, node, saved) -> None:
    set_secret(dashboard)
    push(dashboard, saved[1])
    task = desired(node)
    with pytest.raises(RequestRefused):
        details(dashboard.node("n1"), task)
    node.client.report_checkpoint_task(task, CheckpointTaskReport(state="failed", message="It is so."))
    with pytest.raises(RequestRefused):
        details(node, task)


def test_a_member_pushes_nothing_of_others(dashboard, node, saved) -> None:
    set_secret(dashboard, project="default")
    ben = browser_of(dashboard, person(dashboard.service, "ben", Role.MEMBER))
    refused = ben.post(f"/api/checkpoints/{saved[1]}/push", json={"to": "hf:lab/digits"})
    assert refused.status_code == 403


def test_an_admin_pushes_with_the_projects_secret_while_they_may_act_there(dashboard, node, saved) -> None:
    set_secret(dashboard, project="default")
    ana = browser_of(dashboard, person(dashboard.service, "ana", default=Role.ADMIN))
    assert ana.post(f"/api/checkpoints/{saved[1]}/push", json={"to": "hf:lab/digits"}).status_code == 202
    task = desired(node)
    assert details(node, task).secrets == {"HF_TOKEN": TOKEN}
    with dashboard.service.store.write() as session:
        accounts.set_membership(session, "ana", "default", Role.VIEWER)
    with pytest.raises(RequestRefused, match="ana, who asked for this push, may no longer act on run"):
        details(node, task)


def test_nobodys_own_secret_serves_others(dashboard, node, saved) -> None:
    set_secret(dashboard)
    ana = browser_of(dashboard, person(dashboard.service, "ana", default=Role.ADMIN))
    refused = ana.post(f"/api/checkpoints/{saved[1]}/push", json={"to": "hf:lab/digits"})
    assert refused.status_code == 422 and "there is no secret HF_TOKEN, neither yours nor" in message(refused)


def test_the_audit_log_has_who_pushed_what_where_and_which_secret_was_used(dashboard, node, saved) -> None:
    set_secret(dashboard)
    push(dashboard, saved[1], public=True)
    details(node, desired(node))
    entries = dashboard.http.get("/api/audit").json()
    pushed = next(entry for entry in entries if entry["action"] == "checkpoint-push")
    assert pushed["more"]["target"] == "hf:lab/digits" and pushed["more"]["visibility"] == "public"
    given = next(entry for entry in entries if entry["action"] == "secret-given")
    assert given["object"] == "secret HF_TOKEN of owner" and given["more"]["to"] == "hf:lab/digits"
