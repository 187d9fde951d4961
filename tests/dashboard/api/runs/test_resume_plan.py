"""What a resume differs in, and what its checkpoint holds and lacks, is told before it begins; a jump after it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli import main
from dashboard.compare.resumed_losses import ResumedLosses
from domain.checkpoints.contents import CheckpointContents
from domain.messages import PointBatch
from tests.dashboard.running import FakeNode, Running, sha256_of
from worker.session.client import TaskRef

CONTENT = b"weights"
PYTHON = {"path": "/usr/bin/python3", "python": "3.12.1", "torch": "2.9.0", "packages": {"accelerate": "1.0"}}
NEWER = PYTHON | {"torch": "2.8.0", "packages": {"accelerate": "1.1"}}


def saved(dashboard: Running, node: FakeNode, holds: CheckpointContents | None, first_samples: float = 1.0) -> str:
    """A run that trained on the node, stored a checkpoint with these contents at step 40, and failed."""
    run_id = dashboard.launch(lr=0.1, batch_size=8)
    task = node.task()
    node.report(task, "running", interpreter=PYTHON)
    send_samples(node, task, first_samples)
    offer = node.offer(task, CONTENT, step=40).model_copy(update={"holds": holds})
    place = node.client.offer_checkpoint(task, offer)
    node.client.send_checkpoint(place.checkpoint_id, 0, CONTENT)
    node.client.complete_checkpoint(place.checkpoint_id, sha256_of(CONTENT))
    node.log_points(task, 0, train__loss=[(step, 0.5 + 0.01 * (step % 3), float(step)) for step in range(1, 41)])
    node.report(task, "failed", exit_code=1)
    return run_id


WEIGHTS = CheckpointContents(kinds=["model", "step"])


@pytest.mark.parametrize("holds", [WEIGHTS, None])
def test_contents_are_listed_as_the_node_read_them(
    dashboard: Running, node: FakeNode, holds: CheckpointContents | None
) -> None:
    run_id = saved(dashboard, node, holds)
    (checkpoint,) = dashboard.http.get(f"/api/runs/{run_id}/checkpoints").json()
    assert checkpoint["holds"] == (holds and holds.kinds)
    plan = dashboard.http.get(f"/api/runs/{run_id}/resume").json()
    assert (plan["is_read"], plan["holds"]) == (holds is not None, holds.kinds if holds else [])


def test_a_resume_is_told_before_it_begins_and_changes_nothing(dashboard: Running, node: FakeNode) -> None:
    run_id = saved(dashboard, node, WEIGHTS)
    plan = dashboard.http.get(f"/api/runs/{run_id}/resume", params={"checkpoint": "last.pt"}).json()
    assert (plan["checkpoint"], plan["step"], plan["attempt"], plan["possible"]) == ("work/last.pt", 40, 1, True)
    assert plan["lacks"] == ["optimizer", "scheduler", "rng", "sampler"]
    assert plan["differs"] == [] and plan["consequences"].keys() == set(plan["lacks"])
    assert dashboard.run(run_id)["attempt"] == 1
    assert dashboard.http.get(f"/api/runs/{run_id}/resume", params={"checkpoint": "no.pt"}).status_code == 422


def test_versions_of_the_newest_attempt_are_those_of_now(dashboard: Running, node: FakeNode) -> None:
    run_id = saved(dashboard, node, WEIGHTS)
    dashboard.http.post(f"/api/runs/{run_id}/resume")
    plan = dashboard.http.get(f"/api/runs/{run_id}/resume").json()
    assert not plan["possible"] and "only ended runs can be resumed" in plan["why"]
    task = node.task()
    node.report(task, "running", interpreter=NEWER)
    node.report(task, "failed", exit_code=1)
    plan = dashboard.http.get(f"/api/runs/{run_id}/resume").json()
    changes = {change["field"]: (change["then"], change["now"]) for change in plan["differs"]}
    assert plan["possible"] and changes == {
        "interpreter.torch": ("2.9.0", "2.8.0"),
        "package.accelerate": ("1.0", "1.1"),
    }


def test_a_launch_from_a_checkpoint_is_told_too(dashboard: Running, node: FakeNode) -> None:
    holds = CheckpointContents(kinds=["model", "optimizer"], by_rank=["optimizer"], layout="DeepSpeed checkpoint")
    run_id = saved(dashboard, node, holds)
    spec = {"target": "image_classifier", "gpus_per_node": 2, "lr": 0.2, "batch_size": 8, "resume": run_id}
    plan = dashboard.http.post("/api/preview", json=spec).json()["resume"]
    changes = {change["field"]: (change["then"], change["now"]) for change in plan["differs"]}
    assert changes == {"world_size": (1, 2), "global_batch_size": (8, 16), "lr": (0.1, 0.2)}
    assert not plan["possible"] and "ds_to_universal" in plan["why"]
    assert "resume" not in dashboard.http.post("/api/preview", json=spec | {"resume": None}).json()


def test_the_command_shows_it(dashboard: Running, node: FakeNode, monkeypatch, capfd) -> None:
    run_id = saved(dashboard, node, WEIGHTS)
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    assert main.run(["resume", run_id, "--dry-run", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["holds"] == ["model", "step"]
    assert main.run(["resume", run_id, "--dry-run"]) == 0
    shown = capfd.readouterr().out
    assert "work/last.pt of step 40, attempt 1" in shown and "lacks optimizer: The optimizer starts without" in shown
    spec = ["--gpus-per-node", "2", "--lr", "0.2", "--batch-size", "8", "--resume", run_id, "--dry-run"]
    assert main.run(["launch", "image_classifier", *spec]) == 0
    assert "brings" not in (shown := capfd.readouterr().out) and "World size" in shown


def test_a_run_without_a_checkpoint_begins_again(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    node.report(node.task(), "failed", exit_code=1)
    plan = dashboard.http.get(f"/api/runs/{run_id}/resume").json()
    assert (plan["checkpoint"], plan["possible"]) == (None, True)


def test_a_jump_after_the_resume_is_a_finding_until_the_loss_is_back(dashboard: Running, node: FakeNode) -> None:
    run_id = saved(dashboard, node, WEIGHTS)
    dashboard.http.post(f"/api/runs/{run_id}/resume")
    task = node.task()
    node.report(task, "running")
    judge = ResumedLosses(dashboard.service)

    def finding(start: int, losses: list[float]) -> dict[str, Any] | None:
        first = 41 + start // 10 * 5
        node.log_points(task, start, train__loss=[(first + n, loss, first + n) for n, loss in enumerate(losses)])
        dashboard.pass_by(6)
        judge.tick()
        found = dashboard.http.get(f"/api/runs/{run_id}/findings", params={"attempt": 2}).json()
        return found[0] if found else None

    jumped = finding(0, [2.3, 2.2, 2.1, 2.0, 1.9])
    assert jumped is not None and jumped["kind"] == "loss jumps after resume" and jumped["gone_at"] is None
    assert "from work/last.pt, of step 40" in jumped["evidence"] and "holds no optimizer" in jumped["meaning"]
    finding(10, [1.5, 1.2, 0.9, 0.7, 0.6])
    back = finding(20, [0.5, 0.5, 0.5, 0.5, 0.5])
    assert back is not None and back["gone_at"] is not None


def test_data_that_begin_again_are_recognised_by_their_first_samples(dashboard: Running, node: FakeNode) -> None:
    everything = CheckpointContents(kinds=["model", "optimizer", "scheduler", "rng", "sampler", "step"])
    run_id = saved(dashboard, node, everything, first_samples=7.0)
    dashboard.http.post(f"/api/runs/{run_id}/resume")
    task = node.task()
    node.report(task, "running")
    send_samples(node, task, 7.0)
    node.log_points(task, 0, train__loss=[(41 + n, 2.3, float(n)) for n in range(5)])
    ResumedLosses(dashboard.service).tick()
    (found,) = dashboard.http.get(f"/api/runs/{run_id}/findings", params={"attempt": 2}).json()
    assert "The data begin with the samples" in found["meaning"]


def send_samples(node: FakeNode, task: TaskRef, digest: float) -> None:
    series = {"data/first_256": [(1, digest, 1.0)]}
    node.points(task, PointBatch(path="probe/7.jsonl", generation=0, start=0, end=9, source="probe", series=series))
