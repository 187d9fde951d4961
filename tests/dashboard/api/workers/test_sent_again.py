"""A checkpoint of an ended run that is not whole can be asked for again, until its node has answered."""

from __future__ import annotations

from cli import main
from tests.dashboard.running import FakeNode, Running, sha256_of


def partial(dashboard: Running, node: FakeNode) -> tuple[str, int]:
    """A run that succeeded although half of its checkpoint never arrived; returns its id and the checkpoint's."""
    run_id = dashboard.launch()
    task = node.task()
    place = node.client.offer_checkpoint(task, node.offer(task, b"weights"))
    node.client.send_checkpoint(place.checkpoint_id, 0, b"wei")
    assert dashboard.http.post(f"/api/checkpoints/{place.checkpoint_id}/send-again").status_code == 409
    node.report(task, "succeeded", exit_code=0)
    return run_id, place.checkpoint_id


def listed(dashboard: Running, run_id: str) -> dict:
    (checkpoint,) = dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()
    return dict(checkpoint)


def test_node_is_asked_until_the_checkpoint_is_whole(dashboard: Running, node: FakeNode) -> None:
    run_id, checkpoint_id = partial(dashboard, node)
    assert "never arrived" in dashboard.run(run_id)["finding"]
    answer = dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/send-again")
    assert answer.status_code == 202 and answer.json()["is_asked_for_again"]
    (resend,) = node.client.desired_state(None, 0).resends
    assert (resend.checkpoint_id, resend.run_id, resend.sha256) == (
        checkpoint_id,
        run_id,
        sha256_of(b"weights"),
    )
    node.client.send_checkpoint(checkpoint_id, 3, b"ghts")
    node.client.complete_checkpoint(checkpoint_id, sha256_of(b"weights"))
    node.client.resent(checkpoint_id, None)
    assert node.client.desired_state(None, 0).resends == []
    checkpoint = listed(dashboard, run_id)
    assert checkpoint["complete"] and not checkpoint["is_asked_for_again"]
    assert dashboard.run(run_id)["finding"] is None
    assert dashboard.http.post(f"/api/checkpoints/{checkpoint_id}/send-again").status_code == 409


def test_node_says_why_it_cannot_send_it(dashboard: Running, node: FakeNode, monkeypatch, capfd) -> None:
    run_id, checkpoint_id = partial(dashboard, node)
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    assert main.run(["checkpoints", run_id, "--send-again", "work/last.pt"]) == 0
    node.client.resent(checkpoint_id, "It is no longer on its node.")
    assert listed(dashboard, run_id)["trouble"] == "It is no longer on its node."
    assert node.client.desired_state(None, 0).resends == []
    texts = [line["text"] for line in dashboard.http.get(f"/api/runs/{run_id}/history").json()]
    assert any("could not be sent again: It is no longer on its node." in text for text in texts)
    assert main.run(["checkpoints", run_id, "--send-again", "work/other.pt"]) == 1
    assert dashboard.http.post("/api/checkpoints/999/send-again").status_code == 404
