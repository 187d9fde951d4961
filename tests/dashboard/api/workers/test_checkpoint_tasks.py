"""Work on checkpoints between people, the store and nodes: asked, shared, done, cancelled, refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli import main
from cli.commands.runs.checkpoints import choose
from db.models import CheckpointTask
from domain.checkpoint_use.tasks import DesiredCheckpointTask, TaskKind
from domain.messages import CheckpointOffer
from tests.dashboard.api.workers.checkpoint_work import desired, report, saved
from tests.dashboard.running import FakeNode, Running, sha256_of
from tests.end_to_end.product import wait_for
from worker.session.client import TaskRef
from worker.session.failures import AttemptSuperseded

__all__ = ["saved"]
MERGED = b"merged weights"


def register_older(node: FakeNode) -> None:
    """Register again as a worker that does no work on checkpoints."""
    facts = node.facts.model_copy(update={"info": {}})
    node.client.register(facts, node.identity.node_id, node.client.token, again=True)


def ask(dashboard: Running, checkpoint_id: int, format: str = "safetensors") -> dict[str, Any]:
    answer = dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/merge", json={"format": format})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def fall_silent(dashboard: Running, node: FakeNode) -> None:
    with dashboard.real_silence():
        node.client.desired_state(None, 0)
    dashboard.pass_by(20)
    shown = dashboard.service.nodes
    wait_for(
        lambda: next(one.state for one in shown() if one.name == node.facts.name) == "lost", "its silence to count"
    )


def send_merged(
    node: FakeNode,
    task: DesiredCheckpointTask,
    content: bytes = MERGED,
    *,
    path: str = "merged/last.safetensors",
    is_cut: bool = False,
) -> int:
    """Send what the merge wrote."""
    offer = CheckpointOffer(
        path=path, size_bytes=len(content), sha256=sha256_of(content), written_at=1.0,
        task_id=task.task_id,
    )  # fmt: skip
    place = node.client.offer_checkpoint(TaskRef(task.fence, task.node_rank), offer)
    if is_cut:
        node.client.send_checkpoint(place.checkpoint_id, 0, content[:3])
    elif not place.complete:
        node.client.send_checkpoint(place.checkpoint_id, 0, content)
        node.client.complete_checkpoint(place.checkpoint_id, sha256_of(content))
    return place.checkpoint_id


def listed(dashboard: Running, run_id: str) -> dict[str, dict[str, Any]]:
    checkpoints = dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()
    return {checkpoint["name"]: checkpoint for checkpoint in checkpoints}


def test_a_merge_goes_from_the_person_to_the_node_and_back_as_a_checkpoint(dashboard, node, saved) -> None:
    run_id, checkpoint_id = saved
    view = ask(dashboard, checkpoint_id)
    assert (view["state"], view["name"], view["options"]) == ("waiting", "work/last.pt", {"format": "safetensors"})
    (task,) = desired(node)
    assert (task.task_id, task.run_id, task.kind) == (view["id"], run_id, TaskKind.MERGE)
    assert task.sources[0].sha256 == sha256_of(b"weights") and task.token
    report(node, task, "running", doing="reads tensors", done_bytes=3, total_bytes=7)
    seen = dashboard.http.get(f"/api/checkpoint-tasks/{task.task_id}").json()
    assert (seen["state"], seen["doing"], seen["done_bytes"]) == ("running", "reads tensors", 3)
    merged_id = send_merged(node, task)
    report(node, task, "succeeded", result={"tensors": 2}, merged_id=merged_id)
    assert desired(node) == []
    merged = listed(dashboard, run_id)["merged/last.safetensors"]
    assert merged["complete"] and (merged["merged_from"], merged["merged_from_name"]) == (checkpoint_id, "work/last.pt")
    assert merged["step"] == 40 and not merged["latest"] and not merged["best"]
    assert listed(dashboard, run_id)["work/last.pt"]["latest"]
    assert dashboard.http.get(f"/api/checkpoints/{merged_id}/file").content == MERGED
    (task_listed,) = dashboard.http.get(f"/api/runs/{run_id}/checkpoint-tasks?kind=merge").json()
    assert task_listed["state"] == "succeeded" and task_listed["result"] is None


def test_equal_requests_share_one_task_and_its_result_while_that_is_there(dashboard, node, saved) -> None:
    _, checkpoint_id = saved
    first = ask(dashboard, checkpoint_id)
    assert ask(dashboard, checkpoint_id)["id"] == first["id"]
    other = ask(dashboard, checkpoint_id, "hf")
    assert other["id"] != first["id"] and len(desired(node)) == 2
    task = desired(node)[0]
    report(node, task, "succeeded", result={}, merged_id=send_merged(node, task))
    assert ask(dashboard, checkpoint_id)["id"] == first["id"]
    with dashboard.service.store.write() as session:
        session.get_one(CheckpointTask, first["id"]).merged_id = 999  # deleted since
    assert ask(dashboard, checkpoint_id)["id"] > other["id"]


def test_a_merged_checkpoint_that_was_deleted_is_merged_again(dashboard, node, saved) -> None:
    run_id, checkpoint_id = saved
    ask(dashboard, checkpoint_id)
    (task,) = desired(node)
    merged_id = send_merged(node, task)
    report(node, task, "succeeded", result={}, merged_id=merged_id)
    dashboard.http.delete(f"/api/checkpoints/{merged_id}").raise_for_status()
    assert list(listed(dashboard, run_id)) == ["work/last.pt"]
    for is_erased in (False, True):
        if is_erased:
            dashboard.http.delete(f"/api/checkpoints/{merged_id}").raise_for_status()
            dashboard.http.delete("/api/deleted-checkpoints").raise_for_status()
        ask(dashboard, checkpoint_id)
        (task,) = desired(node)
        report(node, task, "succeeded", result={}, merged_id=send_merged(node, task))
        assert listed(dashboard, run_id)["merged/last.safetensors"]["complete"]
        assert dashboard.http.get(f"/api/checkpoints/{merged_id}/file").content == MERGED


def test_a_checkpoint_stays_while_a_node_reads_it_though_its_file_is_saved_anew(dashboard, node) -> None:
    run_id = dashboard.launch()
    training = node.task()
    node.report(training, "running")
    older = node.store_checkpoint(training, b"older", "work/last.pt")
    ask(dashboard, older)
    (task,) = desired(node)
    node.store_checkpoint(training, b"newer", "work/last.pt")
    assert dashboard.http.get(f"/api/checkpoints/{older}/file").content == b"older" and desired(node) == [task]
    report(node, task, "succeeded", result={}, merged_id=send_merged(node, task))
    newest = node.store_checkpoint(training, b"newest", "work/last.pt")
    saved = [
        one["id"] for one in dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json() if not one["merged_from"]
    ]
    assert saved == [newest]


def test_a_node_resumes_its_run_from_what_was_saved_not_from_what_was_merged(dashboard, node, saved) -> None:
    run_id, checkpoint_id = saved
    ask(dashboard, checkpoint_id)
    (task,) = desired(node)
    report(node, task, "succeeded", result={}, merged_id=send_merged(node, task))
    dashboard.http.post(f"/api/runs/{run_id}/resume").raise_for_status()
    assert node.assignment().resume_from.checkpoint_id == checkpoint_id


def test_a_name_that_both_have_means_what_was_saved_and_merging_that_again_is_refused(dashboard, node) -> None:
    run_id = dashboard.launch()
    task = node.task()
    saved_id = node.store_checkpoint(task, b"shards", "work/step_5.tar")
    node.report(task, "succeeded", exit_code=0)
    ask(dashboard, saved_id)
    (merge,) = desired(node)
    merged_id = send_merged(node, merge, path="merged/step_5.tar")
    report(node, merge, "succeeded", result={}, merged_id=merged_id)
    dashboard.http.post(f"/api/runs/{run_id}/resume", json={"checkpoint": "step_5.tar"}).raise_for_status()
    assert node.assignment().resume_from.checkpoint_id == saved_id
    entries = dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()
    assert choose(entries, run_id, "step_5.tar")["id"] == saved_id
    assert choose(entries, run_id, "merged/step_5.tar")["id"] == merged_id
    refused = dashboard.http.post(f"/api/checkpoints/{merged_id}/merge", json={})
    assert refused.status_code == 409 and "is merged already" in refused.json()["detail"]["message"]


def test_a_task_may_read_its_sources_and_nothing_else(dashboard, node, saved) -> None:
    _, checkpoint_id = saved
    path = f"/api/worker/checkpoints/{checkpoint_id}/file"
    bearer = {"Authorization": f"Bearer {node.client.token}"}
    assert dashboard.anonymous(**bearer).get(path).status_code == 403
    ask(dashboard, checkpoint_id)
    (task,) = desired(node)
    own = dashboard.anonymous(Authorization=f"Bearer {task.token}")
    assert own.get(path).content == b"weights"
    assert own.get("/api/worker/desired").status_code == 403
    report(node, task, "failed", message="It is a picture.")
    assert own.get(path).status_code == 403


def test_a_cancelled_task_ends_and_its_bytes_are_deleted(dashboard, node, saved) -> None:
    run_id, checkpoint_id = saved
    ask(dashboard, checkpoint_id)
    (task,) = desired(node)
    report(node, task, "running")
    merged_id = send_merged(node, task, is_cut=True)
    cancelled = dashboard.http.post(f"/api/checkpoint-tasks/{task.task_id}/cancel").json()
    assert (cancelled["state"], cancelled["doing"]) == ("running", "is being cancelled")
    assert desired(node)[0].is_cancelled
    report(node, task, "cancelled")
    assert desired(node) == [] and list(listed(dashboard, run_id)) == ["work/last.pt"]
    assert not dashboard.service.files.arriving(merged_id).exists()
    assert ask(dashboard, checkpoint_id)["id"] != task.task_id
    with pytest.raises(AttemptSuperseded):
        send_merged(node, task)


def test_a_task_that_no_node_began_is_cancelled_at_once(dashboard, node, saved) -> None:
    task = ask(dashboard, saved[1])
    assert dashboard.http.post(f"/api/checkpoint-tasks/{task['id']}/cancel").json()["state"] == "cancelled"
    assert desired(node) == []
    assert dashboard.http.post(f"/api/checkpoint-tasks/{task['id']}/cancel").json()["state"] == "cancelled"


def test_a_deleted_run_is_no_work_for_its_node(dashboard, node, saved) -> None:
    run_id, checkpoint_id = saved
    task = ask(dashboard, checkpoint_id)
    dashboard.http.delete(f"/api/runs/{run_id}").raise_for_status()
    assert desired(node) == []
    assert dashboard.http.get(f"/api/checkpoint-tasks/{task['id']}").status_code == 404


def test_another_node_does_it_where_the_own_is_not_in_contact(dashboard, node, saved) -> None:
    _, checkpoint_id = saved
    other = dashboard.node("n1")
    fall_silent(dashboard, node)
    ask(dashboard, checkpoint_id)
    (task,) = desired(other)
    merged_id = send_merged(other, task)
    report(other, task, "succeeded", result={}, merged_id=merged_id)
    with pytest.raises(AttemptSuperseded):
        report(node, task, "failed")
    assert dashboard.http.get(f"/api/checkpoints/{merged_id}/file").content == MERGED


def test_a_task_of_a_node_that_is_away_is_done_anew_by_another(dashboard, node, saved) -> None:
    _, checkpoint_id = saved
    first = ask(dashboard, checkpoint_id)
    other = dashboard.node("n1")
    fall_silent(dashboard, node)
    again = ask(dashboard, checkpoint_id)
    assert again["id"] != first["id"] and [task.task_id for task in desired(other)] == [again["id"]]
    assert dashboard.http.get(f"/api/checkpoint-tasks/{first['id']}").json()["state"] == "cancelled"


def test_what_cannot_be_done_is_refused_with_the_next_step(dashboard, node, saved) -> None:
    run_id, checkpoint_id = saved
    register_older(node)
    refused = dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/merge", json={})
    assert refused.status_code == 409 and "upgrade it" in refused.json()["detail"]["message"]
    fall_silent(dashboard, node)
    refused = dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/merge", json={})
    assert refused.status_code == 409 and "No node is in contact" in refused.json()["detail"]["message"]
    assert dashboard.http.post("/api/checkpoints/999/merge", json={}).status_code == 404
    assert dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/merge", json={"format": "gguf"}).status_code == 422
    assert dashboard.http.get("/api/checkpoint-tasks/999").status_code == 404
    assert dashboard.http.get(f"/api/runs/{run_id}/checkpoint-tasks").json() == []


def test_the_command_line_merges_follows_downloads_and_cancels(
    dashboard, node, saved, tmp_path, monkeypatch, capfd
) -> None:
    run_id, _ = saved
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

    def command(*words: str) -> dict[str, Any]:
        assert main.run([*words, "--json"]) == 0
        return dict(json.loads(capfd.readouterr().out))

    begun = command("checkpoint", "merge", run_id, "--no-wait")
    assert (begun["state"], begun["checkpoint"]) == ("waiting", None)
    (task,) = desired(node)
    report(node, task, "succeeded", result={"tensors": 2}, merged_id=send_merged(node, task))
    done = command("checkpoint", "merge", run_id, "last.pt")
    assert done["id"] == begun["id"] and done["result"] == {"tensors": 2}
    assert done["checkpoint"]["name"] == "merged/last.safetensors"
    for option in (["--format", "safetensors"], ["--strip-prefix"], ["--safetensors"]):
        path = tmp_path / option[-1]
        fetched = command("download", run_id, *option, "-o", str(path))
        assert path.read_bytes() == MERGED and fetched["merged_from"] == "work/last.pt"
    other = command("checkpoint", "merge", run_id, "--format", "hf", "--no-wait")
    assert command("checkpoint", "cancel", str(other["id"]))["state"] == "cancelled"


def test_the_command_line_says_why_a_merge_failed(dashboard, node, saved, monkeypatch, capfd) -> None:
    run_id, checkpoint_id = saved
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)

    def fail(seconds: float) -> None:
        for task in desired(node):
            report(node, task, "failed", message="It is a picture: name a checkpoint.")

    monkeypatch.setattr("cli.server.checkpoint_tasks.time.sleep", fail)
    assert main.run(["checkpoint", "merge", run_id]) == 1
    assert capfd.readouterr().err.strip() == "It is a picture: name a checkpoint."
    refused = dashboard.http.get(f"/api/checkpoints/{checkpoint_id}/file?prefix=strip")
    assert refused.status_code == 422 and "checkpoint merge" in refused.json()["detail"]["message"]
