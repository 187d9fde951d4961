"""What people ask of runs over HTTP, and how the API says no."""

from __future__ import annotations

import math
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from sqlalchemy.exc import OperationalError

from domain.liveness import SILENT_AFTER_S
from domain.messages import PointBatch
from domain.points import body_of
from tests.dashboard.running import FakeNode, Running, bundle_of, running, wait_for
from worker.session.client import TaskRef


def test_a_run_is_launched_and_shown(dashboard: Running, node: FakeNode) -> None:
    answer = dashboard.http.post("/api/runs", json={"target": "image_classifier", "name": "digits"})
    launched = answer.json()
    assert answer.status_code == 201
    assert answer.headers["location"] == f"/api/runs/{launched['id']}"
    assert (launched["name"], launched["url"]) == ("digits", f"{dashboard.url}/run?id={launched['id']}")
    run = dashboard.run(launched["id"])
    assert (run["world_size"], run["attempt"], run["state"]) == (2, 1, "starting")
    assert [r["id"] for r in dashboard.http.get("/api/runs").json()] == [launched["id"]]


def test_a_launch_is_answered_as_the_run_then_reads(dashboard: Running, node: FakeNode) -> None:
    for expected, spec in (
        ("starting", {"gpus_per_node": 2}),
        ("queued", {"gpus_per_node": 1}),
        ("queued", {"name": "named"}),
    ):
        launched = dashboard.http.post("/api/runs", json={"target": "image_classifier"} | spec).json()
        run = dashboard.run(launched["id"])
        assert [*launched] == ["id", "name", "state", "url"] and launched["state"] == expected
        assert {key: launched[key] for key in ("id", "name", "state")} == {
            key: run[key] for key in ("id", "name", "state")
        }


def test_every_kind_of_write_shows_in_the_next_list(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(gpus_per_node=1)
    dashboard.launch(gpus_per_node=1)
    assignments = node.client.desired_state(None, 0).assignments
    task = next(TaskRef(a.fence, a.node_rank) for a in assignments if a.run_id == run_id)

    def edited(**change: Any) -> None:
        assert dashboard.http.patch(f"/api/runs/{run_id}", json=change).status_code == 200

    def row() -> dict[str, Any]:
        runs = dashboard.http.get("/api/runs", params={"filter": "archived:yes or archived:no"}).json()
        return next(run for run in runs if run["id"] == run_id)

    writes: list[tuple[Callable[[], object], dict[str, Any]]] = [
        (lambda: edited(name="renamed"), {"name": "renamed"}),
        (lambda: edited(project="vision"), {"project": "vision"}),
        (lambda: edited(add_tags=["b", "a"]), {"tags": ["a", "b"]}),
        (lambda: edited(remove_tags=["b"]), {"tags": ["a"]}),
        (lambda: edited(note="a note"), {"note": "a note"}),
        (lambda: edited(pinned=True), {"pinned": True}),
        (lambda: edited(archived=True), {"archived": True}),
        (lambda: edited(baseline=True), {"baseline": True}),
        (lambda: node.report(task, "running"), {"state": "running"}),
        (lambda: node.log_points(task, 0, train__loss=[(1, 0.5, 1e9)]), {"step": 1, "last_loss": 0.5}),
        (lambda: node.log_points(task, 10, train__loss=[(2, 0.4, 1e9)]), {"step": 2, "last_loss": 0.4}),
        (lambda: node.log_points(task, 20, train__loss=[(2, math.nan, 1e9)]), {"last_loss": "NaN"}),
        (lambda: node.report(task, "failed", exit_code=1, message="gone"), {"state": "failed", "message": "gone"}),
        (lambda: dashboard.http.post(f"/api/runs/{run_id}/resume"), {"attempt": 2}),
    ]  # fmt: skip
    for write, after in writes:
        before = row()
        assert {name: before[name] for name in after} != after
        write()
        now = row()
        assert {name: now[name] for name in after} == after
        only_shown = {"attempt_changes": ANY, "against_baseline": ANY, "fix": ANY, "environment": ANY}
        assert now | only_shown == dashboard.run(run_id)


def test_a_recipes_own_batch_size_and_rate_make_the_figures_known(dashboard: Running, node: FakeNode) -> None:
    run = dashboard.run(dashboard.launch(target="language_model", gpus_per_node=2, lr_scaling="linear"))
    assert run["global_batch_size"] == 2 * run["spec"]["batch_size"]
    assert run["lr"] == 2 * run["base_lr"]


@pytest.mark.parametrize(
    ("spec", "field", "sentence"),
    [
        ({"batch_size": 0}, "batch_size", "batch_size must be at least 1, got 0."),
        ({"batch_size": -3}, "batch_size", "batch_size must be at least 1, got -3."),
        ({"batch_size": "many"}, "batch_size", "batch_size must be a whole number, got 'many'."),
        ({"nodes": 1.5}, "nodes", "nodes must be a whole number, got 1.5."),
        ({"epochs": 0}, "epochs", "epochs must be at least 1, got 0."),
        ({"lr": 0}, "lr", "lr must be greater than 0, got 0."),
        ({"precision": "fp8"}, "precision", "precision must be one of 'fp32', 'bf16' or 'fp16', got 'fp8'."),
        ({"batchsize": 3}, "batchsize", "batchsize is not a known field."),
        ({"target": None}, "target", "target must be text, got None."),
        ({"target": "no_such_recipe"}, "target", "target: there is no recipe 'no_such_recipe'"),
        ({"target": "train.py"}, "target", "target must be an absolute path, got 'train.py'."),
        ({"env": {"LD_PRELOAD": "x"}}, "env", "LD_PRELOAD is set by Rankzero and the node, not by a run."),
        ({"args": ["a\0b"]}, "args", "must not contain a NUL character"),
        ({"gpus_per_node": 3}, "gpus_per_node", "the run needs 1 node with 3 slots"),
        ({"nodes": 2}, "nodes", "the run needs 2 nodes"),
        ({"strategy": "dp", "nodes": 2}, None, "strategy dp is one process on one node: nodes must be 1."),
    ],
)
def test_a_spec_that_cannot_be_right_is_refused_in_a_sentence(
    shared: Running, spec: dict[str, object], field: str | None, sentence: str
) -> None:
    answer = shared.http.post("/api/runs", json={"target": "image_classifier"} | spec)
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert detail["field"] == field
    assert sentence in detail["message"]
    assert detail["message"].endswith(".")
    assert shared.http.get("/api/runs").json() == []


@pytest.mark.parametrize("path", ["/api/runs", "/api/preview"])
def test_more_environment_than_a_program_can_be_given_is_refused_with_the_limit(shared: Running, path: str) -> None:
    for env, words in (
        ({"BLOB": "x" * 131_067}, "BLOB has 131,073 bytes with its name; Linux passes at most 131,072"),
        ({f"V{n}": "x" * 120_000 for n in range(25)}, "1,048,576 bytes (1 MiB) together"),
    ):
        answer = shared.http.post(path, json={"target": "image_classifier", "env": env})
        assert (answer.status_code, answer.json()["detail"]["field"]) == (422, "env")
        assert words in answer.json()["detail"]["message"]


@pytest.mark.parametrize("rate", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_learning_rate_must_be_finite(shared: Running, rate: str) -> None:
    body = f'{{"target": "image_classifier", "lr": {rate}}}'
    answer = shared.http.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["detail"]["field"] == "lr"


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '"x"', "[" * 100_000, '{"target": {}}', b"\xff"])
def test_a_body_that_is_no_spec_is_refused(shared: Running, body: str | bytes) -> None:
    answer = shared.http.post("/api/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["detail"]["message"]


def test_a_missing_script_is_refused_where_we_can_look(dashboard: Running, tmp_path: Path) -> None:
    answer = dashboard.http.post("/api/runs", json={"target": str(tmp_path / "train.py")})
    assert answer.status_code == 422
    assert "does not exist on the dashboard's machine" in answer.json()["detail"]["message"]
    folder = dashboard.http.post("/api/runs", json={"target": str(tmp_path)})
    assert folder.json()["detail"]["field"] == "entry"
    other = dashboard.http.post("/api/runs", json={"target": str(tmp_path), "entry": "main.py"})
    assert "no file 'main.py'" in other.json()["detail"]["message"]


def test_a_script_in_place_on_other_machines_is_not_looked_for_here(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch(target="/only/there/train.py", workdir="/only/there")


def test_a_dry_run_of_more_than_there_is_only_warns(dashboard: Running) -> None:
    wanted = {
        "target": "image_classifier",
        "nodes": 4,
        "gpus_per_node": 2,
        "lr": 0.0001,
        "lr_scaling": "linear",
        "batch_size": 32,
    }
    plan = dashboard.http.post("/api/preview", json=wanted).json()
    assert (plan["lr"], plan["world_size"], plan["global_batch_size"]) == (0.0008, 8, 256)
    assert [c["node_rank"] for c in plan["commands"]] == [0, 1, 2, 3]
    assert "--master-addr=<node0-address>" in plan["commands"][3]["argv"]
    assert any("4 nodes with 2 slots" in warning for warning in plan["warnings"])


def test_stop_delete_and_resume_in_the_wrong_state(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    assert dashboard.http.post(f"/api/runs/{run_id}/resume").status_code == 409
    assert dashboard.http.delete(f"/api/runs/{run_id}").status_code == 409
    assert dashboard.http.post(f"/api/runs/{run_id}/stop").json()["stop_requested_at"]
    assert dashboard.http.post(f"/api/runs/{run_id}/stop").status_code == 200
    task = node.task()
    assert node.assignment().action == "stop"
    node.report(task, "stopped")
    assert dashboard.http.post(f"/api/runs/{run_id}/stop").json()["state"] == "stopped"
    resumed = dashboard.http.post(f"/api/runs/{run_id}/resume", json={"checkpoint": "no-such"})
    assert (resumed.status_code, resumed.json()["detail"]["field"]) == (422, "checkpoint")
    assert dashboard.http.post(f"/api/runs/{run_id}/resume", json={}).json()["attempt"] == 2


def test_delete_takes_the_files_along(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.append(task, "logs/rank0.out", 0, 0, b"hello")
    node.store_checkpoint(task, b"weights")
    node.report(task, "succeeded")
    files = dashboard.service.files
    kept = [p for p in files.root.rglob("*") if p.is_file() and p.name != "proof"]
    assert len(kept) == 3  # the log, when its lines came, and the checkpoint
    assert dashboard.http.delete(f"/api/runs/{run_id}?now=true").json()["state"] == "succeeded"
    assert not any(path.exists() for path in kept)
    assert dashboard.http.get(f"/api/runs/{run_id}").status_code == 404


@pytest.mark.parametrize(
    "run_id",
    ["nosuchrunx", "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%252e%252e", "a%00b", "' OR 1=1--", "x" * 5000],
)
@pytest.mark.parametrize("below", ["", "/logs", "/metrics", "/metrics.csv", "/checkpoints", "/history", "/attempts"])
def test_unknown_runs_are_not_found(shared: Running, run_id: str, below: str) -> None:
    answer = shared.http.get(f"/api/runs/{run_id}{below}")
    assert answer.status_code in (307, 404), answer.text
    assert "root:" not in answer.text


def test_the_list_is_filtered_and_the_text_is_only_text(dashboard: Running, node: FakeNode) -> None:
    first = dashboard.launch(name="a%b_c' OR 1=1--", project="vision")
    second = dashboard.launch(name="plain")

    def ids(**query: object) -> list[str]:
        return [r["id"] for r in dashboard.http.get("/api/runs", params=query).json()]

    assert ids() == [second, first]
    assert ids(q="%") == [first]
    assert ids(q="1=1") == [first]
    assert ids(q="(a+)+$") == []
    assert ids(project="vision") == [first]
    assert ids(state="queued") == []
    assert ids(state=["queued", "starting"], limit=1) == [second]
    assert dashboard.http.get("/api/runs?state=flying").status_code == 422
    assert dashboard.http.get("/api/runs?limit=100000000").json()["detail"]["field"] == "limit"


def test_history_attempts_and_ranks_of_a_run(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    node.report(node.task(), "running", argv=["torchrun", "--standalone"])
    texts = [line["text"] for line in dashboard.http.get(f"/api/runs/{run_id}/history").json()]
    assert texts[0].startswith("launched")
    (attempt,) = dashboard.http.get(f"/api/runs/{run_id}/attempts").json()
    assert attempt["tasks"][0]["argv"] == ["torchrun", "--standalone"]
    refused = dashboard.http.get(f"/api/runs/{run_id}/logs?rank=7")
    assert (refused.status_code, refused.json()["detail"]["field"]) == (404, "rank")
    assert dashboard.http.get(f"/api/runs/{run_id}/logs?rank=launcher&stream=err").content == b""
    assert dashboard.http.get(f"/api/runs/{run_id}/logs?rank=../../token").status_code == 404


def test_the_api_describes_itself_without_other_sites(dashboard: Running) -> None:
    page = dashboard.http.get("/api/docs")
    assert page.status_code == 200
    assert "/api/worker/desired" in page.text
    assert "//" not in page.text.replace("http://", "").replace("https://", "")
    described = dashboard.http.get("/api/openapi.json").json()
    assert "/api/runs/{run_id}/stop" in described["paths"]
    assert {r["name"] for r in dashboard.http.get("/api/info").json()["recipes"]} == {
        "image_classifier",
        "language_model",
    }


def test_a_locked_or_full_store_is_said_and_nothing_breaks(dashboard: Running, node: FakeNode) -> None:
    dashboard.launch()
    task = node.task()
    bearer = {"Authorization": f"Bearer {node.client.token}"}
    batch = PointBatch(path="e", generation=0, start=0, end=1, series={"a": [(1, 2.0, 3.0)]})
    url, content = "/api/worker/pieces", bundle_of(task, body_of(batch))
    http = dashboard.anonymous(**bearer)
    real = dashboard.service.store.write
    for name, status in (("SQLITE_FULL", 507), ("SQLITE_BUSY", 503)):
        broken = sqlite3.OperationalError("provoked")
        broken.sqlite_errorname = name
        error = OperationalError("INSERT", {}, broken)

        def failing(of: str | None = None, error: OperationalError = error) -> object:
            raise error

        dashboard.service.store.write = failing  # type: ignore[method-assign]
        answer = http.post(url, content=content)
        assert answer.status_code == status
        assert answer.json()["detail"]["message"].endswith(".")
    dashboard.service.store.write = real  # type: ignore[method-assign]
    assert http.post(url, content=content).json() == {"answers": [{"status": 200, "body": {"offset": 1}}]}


def test_a_silent_node_is_told_of_and_heard_again(tmp_path: Path) -> None:
    with running(tmp_path / "data", lost_after_s=3600) as dashboard:
        node = dashboard.node()
        run_id = dashboard.launch()
        node.report(node.task(), "running")

        def last_entry() -> str:
            return str(dashboard.http.get(f"/api/runs/{run_id}/history").json()[-1]["text"])

        with dashboard.real_silence():
            node.client.desired_state(None, 0)
        dashboard.pass_by(20)  # silent for that long; a longer jump would pass for the server's sleep
        wait_for(lambda: last_entry().startswith("no contact with n0 for "), "the silence to be written down")
        run = dashboard.run(run_id)
        assert (run["lost_contact"], run["state"]) == (True, "running")
        node.client.desired_state(None, 0)
        wait_for(lambda: "in contact again" in last_entry(), "the node to be heard again")
        assert not dashboard.run(run_id)["lost_contact"]


def test_after_a_sleep_nobody_is_silent_at_first(dashboard: Running, node: FakeNode) -> None:
    service = dashboard.service
    clock = service.clock

    def state_after_a_sleep() -> str | None:
        """None where this machine itself stood still meanwhile, which is silence too."""
        began_at, began = clock(), time.monotonic()
        with dashboard.real_silence():
            node.client.desired_state(None, 0)
        wait_for(lambda: began_at <= service.nodes()[0].last_seen <= clock(), "its contact to be stored")
        service.lease.tick(clock())
        dashboard.pass_by(3600)
        service.lease.tick(clock())
        (shown,) = service.nodes()
        return shown.state if time.monotonic() - began < SILENT_AFTER_S else None

    assert wait_for(state_after_a_sleep, "a sleep without a pause") == "alive"
    dashboard.pass_by(16)
    wait_for(lambda: service.nodes()[0].state == "lost", "its silence to count")


def test_two_launches_at_once_do_not_get_the_same_devices(dashboard: Running, node: FakeNode) -> None:
    threads = [threading.Thread(target=dashboard.launch) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assignments = node.client.desired_state(None, 0).assignments
    assert sorted(task.devices for task in assignments) == [["cpu:0"], ["cpu:1"]]


def test_expected_time_of_a_preview_names_the_runs_that_it_is_like(dashboard: Running) -> None:
    node, wanted = dashboard.node(), {"target": "image_classifier", "gpus_per_node": 1}
    assert dashboard.http.post("/api/preview", json=wanted).json()["expected"] is None
    run_id = dashboard.launch()
    node.report(task := node.task(), "running")
    dashboard.pass_by(720.0)
    node.report(task, "succeeded")
    expected = dashboard.http.post("/api/preview", json=wanted).json()["expected"]
    assert expected["like"] == [run_id]
    assert expected["sentence"] == "Like its last run: 12 min."
