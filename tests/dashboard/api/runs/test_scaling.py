"""A scaling study from its request to its verdict: runs in the queue one after another, measured by the probe."""

from __future__ import annotations

import json

import pytest

from cli import main
from domain.assignments import Assignment
from domain.messages import PointBatch
from domain.performance.phases import TAG
from tests.dashboard.running import FakeNode, Running, wait_for
from worker.session.client import TaskRef

SPEC = {"target": "image_classifier", "batch_size": 32}
STUDY = {"spec": SPEC, "gpus": [1, 2], "steps": 100}


def start(dashboard: Running, **request) -> str:
    answer = dashboard.http.post("/api/scaling-studies", json=STUDY | request)
    assert answer.status_code == 201, answer.text
    assert answer.json()["state"] == "running"
    return str(answer.json()["id"])


def show(dashboard: Running, study_id: str) -> dict:
    return dict(dashboard.http.get(f"/api/scaling-studies/{study_id}").json())


def next_run(node: FakeNode) -> tuple[Assignment, TaskRef]:
    """The run that the study has launched, now running."""
    assignments = wait_for(lambda: node.client.desired_state(None, 0).assignments, "the next run")
    (assignment,) = assignments
    task = TaskRef(assignment.fence, assignment.node_rank)
    node.report(task, "running")
    return assignment, task


def train(
    node: FakeNode,
    task: TaskRef,
    step_s: float,
    records: int = 13,
    size: int = 10,
    rank: int = 0,
    samples: int = 64,
    **phases: float,
) -> None:
    """Send the records of a rank whose steps take so long."""
    steps = [1 + size * number for number in range(records)]
    series = {"steps_per_s": [1 / step_s] * records, "samples_per_s": [samples / step_s] * records}
    shares = {"forward_s": step_s - sum(phases.values()), **phases}
    for name, seconds in shares.items():
        series[TAG.format(rank=rank, name=name)] = [seconds * step for step in steps]
    named = {
        name: [
            (step, value, 1000.0 + 5 * number) for number, (step, value) in enumerate(zip(steps, values, strict=True))
        ]
        for name, values in series.items()
    }
    node.points(
        task,
        PointBatch(path=f"probe/{rank}.jsonl", generation=0, start=0, end=10, source="probe", series=named),
    )


def test_a_study_runs_one_size_after_another_and_says_what_more_devices_bring(
    dashboard: Running, node: FakeNode, monkeypatch, capfd
) -> None:
    study_id = start(dashboard)
    for devices, step_s, comm_s in ((1, 0.1, 0.0), (2, 0.2, 0.1)):
        assignment, task = next_run(node)
        spec = assignment.spec
        assert (spec.gpus_per_node, spec.batch_size, spec.max_steps) == (devices, 32, 12_000)
        assert show(dashboard, study_id)["points"][devices - 1]["speedup"] is None
        train(node, task, step_s, exposed_comm_s=comm_s)
        node.report(task, "succeeded")
    study = wait_for(lambda: (shown := show(dashboard, study_id))["state"] != "running" and shown, "the end")
    assert study["state"] == "succeeded"
    one, two = study["points"]
    assert (one["samples_per_s"], two["samples_per_s"]) == (pytest.approx(640), pytest.approx(320))
    assert (two["devices"], two["nodes"], two["speedup"], two["efficiency"]) == (
        2,
        1,
        pytest.approx(0.5),
        pytest.approx(0.25),
    )
    assert (two["spread"], two["limit"], two["run"]) == (
        pytest.approx(0, abs=0.01),
        "communication",
        assignment.run_id,
    )
    assert study["verdict"].startswith("2 processes (0.5x, 25%) are no faster than 1, for twice the cost.")
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    assert main.run(["scale", "show", study_id, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == study
    assert main.run(["scale", "show", study_id]) == 0
    assert "25%" in capfd.readouterr().out
    assert main.run(["scale", "image_classifier", "--gpus", "1,4"]) == 2
    assert "4 devices must lie on one node" in capfd.readouterr().err
    assert main.run(["scale", "stop", "nothing"]) == 1


def test_a_slow_rank_is_the_limit_of_a_study(dashboard: Running, node: FakeNode) -> None:
    study_id = start(dashboard)
    _, alone = next_run(node)
    train(node, alone, 0.1)
    node.report(alone, "succeeded")
    _, task = next_run(node)
    train(node, task, 0.4, exposed_comm_s=0.3)
    train(node, task, 0.4, rank=1, data_s=0.3, exposed_comm_s=0.001)
    node.report(task, "succeeded")
    study = wait_for(lambda: (shown := show(dashboard, study_id))["state"] != "running" and shown, "the end")
    assert study["points"][1]["limit"] == "slow rank"
    assert "Limit on 2 processes: rank 1 on " in study["verdict"] and "for data" in study["verdict"]


def test_an_unchanged_script_is_stopped_when_it_has_made_its_steps(
    dashboard: Running, node: FakeNode, tmp_path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    study_id = start(dashboard, spec={"target": str(script)}, gpus=[2])
    for runs in (1, 2, 3, 4, 5):
        assignment, task = next_run(node)
        assert assignment.spec.max_steps is None
        train(node, task, 0.1 * runs, records=4, size=40)
        wait_for(lambda: node.client.desired_state(None, 0).assignments[0].action == "stop", "its stop")
        node.report(task, "stopped")
    study = wait_for(lambda: (shown := show(dashboard, study_id))["state"] != "running" and shown, "the end")
    assert study["points"][0]["samples_per_s"] == pytest.approx(640 / 3)
    assert "Runs differ on 2 processes (240% in 5 runs)" in study["verdict"]


def test_a_size_that_fails_is_named_and_a_stop_ends_the_rest(dashboard: Running, node: FakeNode) -> None:
    study_id = start(dashboard, mode="strong")
    assignment, task = next_run(node)
    node.report(task, "failed", reason="script error", message="No module named foo")
    failed = assignment.run_id
    assignment, task = next_run(node)
    assert (assignment.spec.batch_size, assignment.spec.gpus_per_node) == (16, 2)
    assert show(dashboard, study_id)["points"][0]["problem"].startswith(f"run {failed} failed: No module")
    assert dashboard.http.post(f"/api/scaling-studies/{study_id}/stop").json()["state"] == "stopping"
    wait_for(lambda: node.client.desired_state(None, 0).assignments[0].action == "stop", "its stop")
    node.report(task, "stopped")
    study = wait_for(lambda: (shown := show(dashboard, study_id))["state"] == "stopped" and shown, "the end")
    assert study["verdict"].endswith("2 processes: the study was stopped before it was measured.")
    listed = dashboard.http.get("/api/scaling-studies").json()
    assert [(one["id"], one["by"]) for one in listed] == [(study_id, "owner")]


def test_a_script_that_ends_too_soon_ends_the_study_and_says_what_to_do(
    dashboard: Running, node: FakeNode, tmp_path, monkeypatch, capfd
) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n")
    study_id = start(dashboard, spec={"target": str(script)}, steps=60)
    _, task = next_run(node)
    train(node, task, 0.001, records=2, size=29)
    node.report(task, "succeeded")
    study = wait_for(lambda: (shown := show(dashboard, study_id))["state"] != "running" and shown, "the end")
    assert study["state"] == "failed" and len(dashboard.http.get("/api/runs").json()) == 1
    assert "ended by itself at step 30, and 20 steps of warm-up and 60 more" in study["verdict"]
    assert "--epochs '{epochs}'" in study["verdict"] and "other sizes would end as soon" in study["verdict"]
    assert study["points"][1]["run"] is None and study["points"][1]["speedup"] is None
    study_id = start(dashboard, spec={"target": str(script), "args": ["--epochs={epochs}"], "epochs": 1}, steps=60)
    assignment, task = next_run(node)
    assert (assignment.spec.epochs, assignment.spec.max_steps) == (8000, None)
    train(node, task, 0.001, records=2, size=79)
    node.report(task, "succeeded")
    study = wait_for(lambda: (shown := show(dashboard, study_id))["state"] != "running" and shown, "the end")
    assert study["state"] == "failed" and "after less than the 5 s" in study["verdict"]


def test_one_measured_size_of_two_is_no_speed_up(dashboard: Running, node: FakeNode) -> None:
    study_id = start(dashboard)
    _, task = next_run(node)
    node.report(task, "failed", reason="script error", message="No module named foo")
    _, task = next_run(node)
    train(node, task, 0.1)
    node.report(task, "succeeded")
    study = wait_for(lambda: (shown := show(dashboard, study_id))["state"] != "running" and shown, "the end")
    assert study["state"] == "failed" and study["points"][1]["speedup"] == 1
    assert "a speed-up needs a second size" in study["verdict"]


def test_several_global_batches_train_as_many_samples_each_with_its_learning_rate(
    dashboard: Running, node: FakeNode, monkeypatch, capfd
) -> None:
    spec = SPEC | {"lr": 0.1, "lr_scaling": "linear"}
    study_id = start(dashboard, spec=spec, global_batches=[128, 64])
    expected = [(64, 1, 64, 240, 0.2), (64, 2, 32, 240, 0.2), (128, 1, 128, 120, 0.4), (128, 2, 64, 120, 0.4)]
    for batch, devices, of_rank, steps, rate in expected:
        assignment, task = next_run(node)
        trained = assignment.spec
        assert (trained.gpus_per_node, trained.batch_size, trained.max_steps) == (
            devices,
            of_rank,
            100 * steps,
        )
        assert (trained.scaled_lr, trained.global_batch_size) == (pytest.approx(rate), batch)
        report_loss(node, task, [(steps // 2, 9.0), (steps - 1, 1.0), (steps, 3.0)])
        train(node, task, 0.1 * batch / 64 / devices, size=steps // 12, samples=batch)
        node.report(task, "succeeded")
    study = wait_for(lambda: (shown := show(dashboard, study_id))["state"] != "running" and shown, "the end")
    assert [point["global_batch_size"] for point in study["points"]] == [64, 64, 128, 128]
    assert [point["speedup"] for point in study["points"]] == pytest.approx([1, 2, 1, 2])
    assert study["mode"] == "strong"
    batches = study["batches"]
    assert (batches["loss"], batches["samples"], batches["lr_rule"]) == (
        "train/loss",
        15360,
        "linear, 0.1 for 32",
    )
    assert [(one["lr"], one["loss"]) for one in batches["batches"]] == [
        (pytest.approx(0.2), 2),
        (pytest.approx(0.4), 2),
    ]
    assert (batches["flat_from"], batches["best"]) == ({"1": 64, "2": 64}, 64)
    assert study["verdict"].startswith("On 2 processes global batches larger than 64 gain less than 10% throughput")
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    assert main.run(["scale", "show", study_id]) == 0
    printed = capfd.readouterr().out
    assert "learning rate (linear, 0.1 for 32)" in printed and "train/loss after 15.4 k samples" in printed
    assert main.run(["scale", "image_classifier", "--global-batches", "64,x"]) == 2
    assert "global_batches: must be numbers" in capfd.readouterr().err


def report_loss(node: FakeNode, task: TaskRef, losses: list[tuple[int, float]]) -> None:
    """Send what the script logged."""
    points = [(step, loss, 1000.0 + step) for step, loss in losses]
    node.points(task, PointBatch(path="events", generation=0, start=0, end=10, series={"train/loss": points}))


@pytest.mark.parametrize(
    ("field", "request_"),
    [
        ("gpus", {"gpus": [1, 4]}),
        ("gpus", {"spec": SPEC | {"gpus_per_node": 1}}),
        ("batch_size", {"mode": "strong", "spec": SPEC | {"batch_size": 31}}),
        ("global_batches", {"global_batches": [64, 63]}),
        ("global_batches", {"global_batches": [66], "spec": SPEC | {"accumulate": 2}}),
        ("global_batches", {"global_batches": []}),
        ("mode", {"global_batches": [64], "mode": "weak"}),
        ("probe", {"spec": SPEC | {"probe": False}}),
        ("nodes", {"spec": SPEC | {"nodes": 2}}),
        ("strategy", {"spec": SPEC | {"strategy": "single"}}),
        ("steps", {"steps": 0}),
    ],
)
def test_a_study_that_cannot_be_measured_is_refused_at_once(shared: Running, field: str, request_: dict) -> None:
    answer = shared.http.post("/api/scaling-studies", json=STUDY | request_)
    assert (answer.status_code, answer.json()["detail"]["field"]) == (422, field)
    assert shared.http.get("/api/runs").json() == []
    assert shared.http.get("/api/scaling-studies/nope").status_code == 404
