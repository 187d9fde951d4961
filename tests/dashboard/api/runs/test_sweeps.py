"""A sweep from its request to its best trial: runs in the queue, compared by a series that they log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli import main
from domain.assignments import Assignment
from tests.dashboard.running import FakeNode, Running, wait_for
from worker.session.client import TaskRef

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--learning-rate", type=float)
parser.add_argument("--width", type=int)
parser.add_argument("--wide", action="store_true")
"""
GRID = {"lr": {"values": [0.1, 0.2]}, "width": {"values": [8]}}


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(SCRIPT)
    return str(tmp_path / "train.py")


def request(script: str, **more) -> dict:
    return {
        "spec": {"target": script, "gpus_per_node": 1},
        "parameters": GRID,
        "metric": "val/loss",
    } | more


def start(dashboard: Running, script: str, **more) -> str:
    answer = dashboard.http.post("/api/sweeps", json=request(script, **more))
    assert answer.status_code == 201, answer.text
    assert answer.json()["state"] == "running"
    return str(answer.json()["id"])


def show(dashboard: Running, sweep_id: str) -> dict:
    return dict(dashboard.http.get(f"/api/sweeps/{sweep_id}").json())


def live(node: FakeNode, count: int) -> list[tuple[Assignment, TaskRef]]:
    """The trials that the node is told to run, now running; in the order of their launch."""

    def assignments() -> list[Assignment] | None:
        wanted = node.client.desired_state(None, 0).assignments
        return wanted if len(wanted) == count else None

    wanted = sorted(wait_for(assignments, "the trials"), key=lambda assignment: assignment.fence)
    tasks = [TaskRef(assignment.fence, assignment.node_rank) for assignment in wanted]
    for task in tasks:
        node.report(task, "running")
    return list(zip(wanted, tasks, strict=True))


def test_a_sweep_launches_its_grid_and_names_the_best(
    dashboard: Running, node: FakeNode, script: str, monkeypatch, capfd
) -> None:
    sweep_id = start(dashboard, script)
    trials = live(node, 2)
    assert [one.spec.args for one, _ in trials] == [["--learning-rate={lr}", "--width=8"]] * 2
    assert [one.spec.lr for one, _ in trials] == [0.1, 0.2]
    assert trials[0][0].spec.name == "train lr=0.1 width=8"
    for (_, task), value in zip(trials, (0.5, 0.4), strict=True):
        node.log_points(task, 0, val__loss=[(1, 0.9, 1.0), (2, value, 2.0)])
    assert [trial["value"] for trial in show(dashboard, sweep_id)["trials"]] == [0.5, 0.4]
    for _, task in trials:
        node.report(task, "succeeded")
    sweep = wait_for(lambda: (shown := show(dashboard, sweep_id))["state"] != "running" and shown, "the end")
    best = {"number": 1, "run": trials[1][0].run_id, "params": {"lr": 0.2, "width": 8}, "value": 0.4}
    assert sweep["best"] == best | {"rung": 0, "state": "succeeded", "message": None}
    assert (sweep["state"], sweep["metric"], sweep["goal"], sweep["by"]) == ("succeeded", "val/loss", "min", "owner")
    assert [one["id"] for one in dashboard.http.get("/api/sweeps").json()] == [sweep_id]
    drawn = dashboard.http.get(f"/api/sweeps/{sweep_id}/curves").json()
    assert drawn["curves"] == [[[1, 0.9], [2, 0.5]], [[1, 0.9], [2, 0.4]]]
    assert (drawn["scales"], drawn["importance"]) == ({"lr": "list", "width": "list"}, None)
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    assert main.run(["sweep", "show", sweep_id, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == sweep
    assert main.run(["sweep", "show", sweep_id]) == 0
    assert "Best: val/loss 0.4 with lr=0.2 width=8" in capfd.readouterr().out
    assert main.run(["sweep", "stop", "nothing"]) == 1
    for wrong in ([], ["--param", "lr=1"], ["--param", "lr=2..1", "--metric", "loss"]):
        assert main.run(["sweep", script, *wrong]) == 2
    grid = ["--param", "width=8,16", "--metric", "loss", "--gpus-per-node", "1", "--parallel", "1", "--json"]
    assert main.run(["sweep", script, *grid]) == 0
    assert json.loads(capfd.readouterr().out)["trials_planned"] == 2


def test_a_failed_trial_is_told_as_what_it_was_and_a_stop_ends_the_rest(
    dashboard: Running, node: FakeNode, script: str
) -> None:
    sweep_id = start(dashboard, script, parameters={"width": {"values": [1, 2, 3, 4]}})
    (_, failing), (_, silent) = live(node, 2)
    node.report(failing, "failed", reason="script error", message="No module named foo")
    node.report(silent, "succeeded")
    wait_for(lambda: show(dashboard, sweep_id)["trials"][1]["message"], "its result")
    failed, ended = show(dashboard, sweep_id)["trials"][:2]
    assert (failed["state"], ended["state"]) == ("failed", "succeeded")
    assert failed["message"].startswith("No module named foo") and failed["value"] is None
    assert ended["message"] == "It logged no val/loss; it has no series."
    live(node, 2)
    assert dashboard.http.post(f"/api/sweeps/{sweep_id}/stop").json()["state"] == "stopping"
    for assignment, task in live(node, 2):
        wait_for(
            lambda: {one.action for one in node.client.desired_state(None, 0).assignments} == {"stop"},
            "stops",
        )
        assert assignment.spec.args in (["--width=3"], ["--width=4"])
        node.log_points(task, 0, val__loss=[(1, 0.1, 1.0)])
    for _, task in live(node, 2):
        node.report(task, "stopped")
    sweep = wait_for(lambda: (shown := show(dashboard, sweep_id))["state"] == "stopped" and shown, "the end")
    assert [trial["state"] for trial in sweep["trials"]] == ["failed", "succeeded", "stopped", "stopped"]
    assert sweep["best"]["number"] == 2


@pytest.mark.long
def test_a_trial_that_is_behind_is_pruned_and_goes_on_when_it_is_among_the_best(
    dashboard: Running, node: FakeNode, script: str, monkeypatch, capfd
) -> None:
    grid = {"width": {"values": [1, 2, 3, 4, 5, 6]}}
    sweep_id = start(dashboard, script, parameters=grid, early_stop="asha", first_rung=10)
    (_, first), (_, second) = live(node, 2)
    node.log_points(first, 0, val__loss=[(9, 0.9, 1.0), (10, 0.2, 2.0)])
    wait_for(lambda: show(dashboard, sweep_id)["trials"][0]["rung"] == 1, "its rung")
    node.log_points(second, 0, val__loss=[(5, 0.28, 1.0), (12, 0.3, 2.0)])
    message = "pruned at rung 1 (step 10): val/loss 0.3, the best third is at 0.2 or lower"
    wait_for(lambda: show(dashboard, sweep_id)["trials"][1]["message"] == message, "its pruning")
    wait_for(lambda: "stop" in {one.action for one in node.client.desired_state(None, 0).assignments}, "a stop")
    node.report(second, "stopped")
    trials_of = lambda: show(dashboard, sweep_id)["trials"]  # noqa: E731
    wait_for(lambda: trials_of()[1]["state"] == "pruned", "its result")
    run_id = trials_of()[1]["run"]
    for number in (2, 3, 4, 5):
        wait_for(lambda n=number: len(trials_of()) > n, "the next trial")
        (_, task) = next(one for one in live(node, 2) if one[0].run_id == trials_of()[number]["run"])
        node.log_points(task, 0, val__loss=[(10, 0.9, 1.0)])
        wait_for(lambda n=number: trials_of()[n]["message"], "its pruning")
        node.report(task, "stopped")
    wait_for(lambda: trials_of()[1]["rung"] == 1, "its promotion")
    (again, task) = next(one for one in live(node, 2) if one[0].run_id == run_id)
    assert again.attempt == 2
    node.log_points(task, 0, val__loss=[(20, 0.25, 1.0)])
    node.report(task, "succeeded")
    node.report(first, "succeeded")
    sweep = wait_for(lambda: (shown := show(dashboard, sweep_id))["state"] != "running" and shown, "the end")
    assert [trial["state"] for trial in sweep["trials"]] == ["succeeded"] * 2 + ["pruned"] * 4
    assert [trial["value"] for trial in sweep["trials"]] == [0.2, 0.25, 0.9, 0.9, 0.9, 0.9]
    assert (sweep["early_stop"], sweep["first_rung"], sweep["best"]["number"]) == ("asha", 10, 0)
    assert sweep["device_hours_saved"] >= 0
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    assert main.run(["sweep", "show", sweep_id]) == 0
    printed = capfd.readouterr().out
    assert "rung" in printed and "4 trials pruned: about " in printed


def test_the_first_rung_is_a_ninth_of_the_first_trial_that_succeeds(
    dashboard: Running, node: FakeNode, script: str
) -> None:
    sweep_id = start(dashboard, script, early_stop="median")
    (_, task), _ = live(node, 2)
    node.log_points(task, 0, val__loss=[(step, 1 / step, 1.0) for step in range(1, 91)])
    assert show(dashboard, sweep_id)["first_rung"] is None
    node.report(task, "succeeded")
    wait_for(lambda: show(dashboard, sweep_id)["first_rung"] == 10, "the first rung")


@pytest.mark.long
def test_a_searched_range_is_tried_within_its_ends(dashboard: Running, node: FakeNode, script: str) -> None:
    ranges = {"lr": {"low": 1e-5, "high": 1e-2, "log": True}, "width": {"low": 1, "high": 64}}
    ranges |= {"wide": {"values": [True, False]}}
    for search in ("random", "tpe"):
        sweep_id = start(dashboard, script, parameters=ranges, search=search, trials=4)
        for number in range(2):
            for assignment, task in live(node, 2):
                assert 1e-5 <= (assignment.spec.lr or 0) <= 1e-2
                node.log_points(task, 0, val__loss=[(1, number + 0.5, 1.0)])
                node.report(task, "succeeded")
        sweep = wait_for(lambda s=sweep_id: (shown := show(dashboard, s))["state"] != "running" and shown, "the end")
        params = [trial["params"] for trial in sweep["trials"]]
        assert len({one["lr"] for one in params}) == 4
        assert {type(one["width"]) for one in params} == {int}
        assert {one["wide"] for one in params} <= {True, False}


def test_a_limit_of_device_hours_ends_a_sweep_with_its_live_trials(
    dashboard: Running, node: FakeNode, script: str
) -> None:
    """Any trial that holds a device for some milliseconds has used up this limit."""
    sweep_id = start(dashboard, script, parameters={"width": {"values": [1, 2, 3]}}, max_device_hours=1e-6)
    wait_for(lambda: [one.action for one in node.client.desired_state(None, 0).assignments] == ["stop"], "its stop")
    ((_, task),) = live(node, 1)
    node.log_points(task, 0, val__loss=[(1, 0.5, 1.0)])
    node.report(task, "stopped")
    sweep = wait_for(lambda: (shown := show(dashboard, sweep_id))["state"] != "running" and shown, "the end")
    assert sweep["message"] == "The limit of 1e-06 device-hours was reached after 1 trial."
    assert (sweep["state"], sweep["best"]["value"]) == ("succeeded", 0.5) and sweep["device_hours"] > 1e-6


def test_a_sweep_that_cannot_run_is_refused_at_once(dashboard: Running, node: FakeNode, script: str) -> None:
    refused: list[tuple[str | None, dict]] = [
        ("parameters", {"parameters": {"depth": {"values": [1]}}}),
        (None, {"parameters": {"lr": {"low": 1, "high": 2}}, "search": "grid"}),
        ("parameters", {"parameters": {}}),
        ("lr", {"parameters": {"lr": {"values": [0.1, -1]}}}),
        ("gpus_per_node", {"parameters": {"gpus_per_node": {"values": [1, 3]}}}),
        ("goal", {"goal": "least"}),
        ("metric", {"metric": ""}),
        ("early_stop", {"early_stop": "hyperband"}),
        (None, {"first_rung": 10}),
    ]
    for field, changes in refused:
        answer = dashboard.http.post("/api/sweeps", json=request(script, **changes))
        assert (answer.status_code, answer.json()["detail"]["field"]) == (422, field), answer.text
    assert dashboard.http.get("/api/sweeps").json() == []
    assert dashboard.http.get("/api/sweeps/nope").status_code == 404


def test_several_seeds_are_one_run_each_and_one_address_compares_them(
    dashboard: Running, tmp_path: Path, monkeypatch, capfd
) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + 'parser.add_argument("--seed", type=int)\nparser.parse_args()\n')
    launch = ["launch", str(script), "--gpus-per-node", "1", "--wait-for-nodes", "--json"]
    assert main.run([*launch, "--seeds", "1..3"]) == 0
    launched = json.loads(capfd.readouterr().out)
    runs = [dashboard.http.get(f"/api/runs/{run['id']}").json() for run in launched["runs"]]
    assert [run["name"] for run in runs] == [f"train seed={seed}" for seed in (1, 2, 3)]
    assert [run["spec"]["seed"] for run in runs] == [1, 2, 3]
    assert {tuple(run["spec"]["args"]) for run in runs} == {("--seed={seed}",)}
    ids = ",".join(run["id"] for run in runs)
    assert launched["url"].endswith(f"/compare?runs={ids}&group=all")
    compared = dashboard.http.get("/api/compare", params={"runs": ids, "group": "all"}).json()
    assert compared["groups"] == [{"values": {}, "runs": ids.split(",")}]
    script.write_text(SCRIPT)
    assert main.run([*launch, "--seeds", "1,2"]) == 2
    assert "takes no seed" in capfd.readouterr().err
    assert len(dashboard.http.get("/api/runs").json()) == 3
