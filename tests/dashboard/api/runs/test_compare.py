"""Several runs are compared over HTTP and by command: only what differs, results, and curves as columns."""

from __future__ import annotations

import csv
import json
import re
import struct
from typing import Any

import pytest

from dashboard.compare.document import summary
from tests.dashboard.running import Running
from tests.dashboard.seeded_store import Seed

SECRETS = ("first-secret", "second-secret", "third-secret")


@pytest.fixture(scope="module")
def made(shared: Running) -> dict[str, str]:
    """Five ended runs that logged, and one that waits; ids by name."""
    seed = Seed(shared.service.store, shared.service.clock())
    seed.node("gpu-1", 1)
    for number, (name, lr) in enumerate((("a", 0.1), ("b", 0.2), ("c", 0.2))):
        env = {"API_TOKEN": SECRETS[number], "MODE": "x"}
        seed.launch(name, 900, gpus_per_node=1, lr=lr, seed=number, env=env)
        seed.start(name, 890)
        seed.train(name, 50 + number, 800)
        seed.report(name, "succeeded", 100, exit_code=0)
    seed.spend("a", 11, data_s=0.01, forward_s=0.03)
    seed.spend("b", 21, data_s=0.03, forward_s=0.03, copy_s=1e-6)
    for name, lr in (("a", "0.1"), ("b", "0.2")):
        config = {"optim": {"lr": lr, "api_key": f"secret-{name}"}, "layers": 4}
        line = json.dumps({"logger": "wandb", "settings": {"config": config}}).encode()
        seed.file(shared.service.files, name, "probe/loggers/settings-1.jsonl", line)
    for name, source, lr in (("logs", "events", 0.1), ("prints", "printed", 0.3)):
        seed.launch(name, 90, gpus_per_node=1, target="train.py", lr=lr, args=["--lr", "{lr}"])
        seed.start(name, 80)
        seed.points(name, {"loss": [(step, lr / step, 1000.0 + step) for step in (1, 2)]}, source)
        seed.report(name, "succeeded", 10, exit_code=0)
    seed.launch("waits", 10, gpus_per_node=1, nodes=5, wait_for_nodes=True)
    return seed.runs


def compared(shared: Running, *ids: str, **more: str) -> Any:
    answer = shared.http.get("/api/compare", params={"runs": ",".join(ids), **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def metrics(shared: Running, run: str) -> Any:
    return shared.http.get(f"/api/runs/{run}/metrics").json()


def test_only_what_differs_is_returned_with_the_value_of_each_run(shared, made):
    a, b, c = made["a"], made["b"], made["c"]
    comparison = compared(shared, b, a, c)
    fields = {row["field"]: row["values"] for row in comparison["differences"]}
    assert comparison["runs"] == [b, a, c]
    assert fields["lr"] == {a: 0.1, b: 0.2, c: 0.2}
    assert fields["seed"] == {a: 0, b: 1, c: 2}
    assert {"env.MODE", "target", "project", "state"}.isdisjoint(fields)
    assert not any(secret in json.dumps(comparison) for secret in SECRETS)
    assert len(set(fields["env.API_TOKEN"].values())) == 3


def test_results_are_the_last_and_the_best_value_of_each_series(shared, made):
    a, waits = made["a"], made["waits"]
    comparison = compared(shared, a, waits)
    series = {row["name"]: row for row in comparison["series"]}
    logged = metrics(shared, a)
    assert set(series) == set(logged)
    for name, points in logged.items():
        values = [value for _, value, _ in points]
        best = min(values) if name.endswith("loss") else None
        extremes = {"lowest": min(values), "highest": max(values)}
        expected = {"last": values[-1], "best": best, "steps": points[-1][0], **extremes}
        assert series[name]["runs"] == {a: expected}
    assert {row["field"] for row in comparison["differences"]} >= {"state", "nodes", "nodes_used"}


def test_logged_hyperparameters_that_differ_are_fields(shared, made):
    fields = {row["field"]: row for row in compared(shared, made["a"], made["b"], made["c"])["differences"]}
    assert fields["logged.optim.lr"]["values"] == {made["a"]: 0.1, made["b"]: 0.2, made["c"]: None}
    assert fields["logged.layers"]["label"] == "Logged layers"
    assert "secret-" not in json.dumps(fields["logged.optim.api_key"])


def test_a_baseline_gives_changes_in_per_cent(shared, made):
    a, b = made["a"], made["b"]
    (loss,) = (row for row in compared(shared, a, b, baseline=a)["series"] if row["name"] == "train/loss")
    change = 100 * (loss["runs"][b]["last"] / loss["runs"][a]["last"] - 1)
    assert loss["runs"][b]["last_change_percent"] == pytest.approx(change)
    assert loss["runs"][a]["best_change_percent"] == 0


def test_comparison_has_the_phases_of_a_step(shared, made):
    a, b, c = made["a"], made["b"], made["c"]
    phases = compared(shared, a, b, c, baseline=a)["phases"]
    assert [row["title"] for row in phases] == ["Step", "Waiting for data", "Forward"]
    step, data, _ = (row["runs"] for row in phases)
    assert set(step) == {a, b}
    assert step[a] == {"seconds": pytest.approx(0.04), "change_percent": pytest.approx(0)}
    assert data[b] == {"seconds": pytest.approx(0.03), "change_percent": pytest.approx(200)}
    (step, *_) = compared(shared, b, a, baseline="none")["phases"]
    assert step["runs"][b] == {"seconds": pytest.approx(0.06, rel=1e-3)}
    assert compared(shared, c)["phases"] == []


def test_curves_are_columns_that_hold_what_was_logged(shared, made):
    a, c = made["a"], made["c"]
    names = shared.http.get("/api/compare/names", params={"runs": f"{a},{c}"}).json()
    assert names[a]["val/loss"] == "events" and set(names) == {a, c}
    query = {"runs": f"{a},{c}", "name": ["train/loss", "val/loss"]}
    body = shared.http.get("/api/compare/curves", params=query).content
    (length,) = struct.unpack_from("<Q", body)
    curves, at = json.loads(body[8 : 8 + length]), 8 + length
    assert [(curve["run"], curve["name"]) for curve in curves].count((c, "val/loss")) == 1 and len(curves) == 4
    for curve in curves:
        columns = struct.unpack_from(f"<{3 * curve['count']}d", body, at)
        at += 24 * curve["count"]
        points = zip(*(columns[i * curve["count"] : (i + 1) * curve["count"]] for i in range(3)), strict=True)
        assert [list(point) for point in points] == metrics(shared, curve["run"])[curve["name"]]
    assert at == len(body)


def test_each_attempt_has_its_own_batch(shared, made):
    rows = shared.http.get("/api/compare/batches", params={"runs": f"{made['a']},{made['waits']}"}).json()
    assert rows[made["a"]] == [{"attempt": 1, "global_batch": None, "first_step": 1}]
    assert rows[made["waits"]] == [{"attempt": 1, "global_batch": None, "first_step": None}]


def test_a_part_of_the_steps_can_be_asked_for(shared, made):
    query = {"runs": made["a"], "name": "train/loss", "since": 10, "until": 19}
    body = shared.http.get("/api/compare/curves", params=query).content
    assert b'"count":10' in body


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"runs": ""}, 422, "Name at least one run"),
        ({"runs": "a,zzzzzzzzzz"}, 404, "There is no run"),
        ({"runs": "zzzzzzzzzz"}, 404, "There is no run 'zzzzzzzzzz'."),
    ],
)
def test_runs_that_are_not_there_are_named(shared, query, status, words):
    answer = shared.http.get("/api/compare", params=query)
    assert answer.status_code == status and words in answer.json()["detail"]["message"]


def test_groups_have_the_mean_and_the_spread_of_their_results(shared, made):
    a, b, c = made["a"], made["b"], made["c"]
    comparison = compared(shared, a, b, c, group="lr")
    assert comparison["groups"] == [{"values": {"lr": 0.1}, "runs": [a]}, {"values": {"lr": 0.2}, "runs": [b, c]}]
    (loss,) = (row for row in comparison["series"] if row["name"] == "train/loss")
    best = [loss["runs"][run]["best"] for run in (b, c)]
    alone, pair = (group["best"] for group in loss["groups"])
    assert alone == {"mean": loss["runs"][a]["best"], "spread": None, "count": 1}
    assert pair["mean"] == pytest.approx(sum(best) / 2) and pair["count"] == 2
    assert pair["spread"] == pytest.approx(abs(best[0] - best[1]) / 2**0.5)
    assert summary([float("nan"), None]) is None
    (loss,) = (
        row for row in compared(shared, a, b, c, group="lr", baseline=a)["series"] if row["name"] == "train/loss"
    )
    alone, pair = (group["best"] for group in loss["groups"])
    base = loss["baseline"]["best"]
    assert alone["change_percent"] == 0 and base == alone["mean"]
    assert pair["change_percent"] == pytest.approx(100 * (pair["mean"] - base) / base)
    assert [group["runs"] for group in compared(shared, b, c, group="lr")["groups"]] == [[b, c]]


def test_runs_that_are_not_there_can_be_left_out(shared, made):
    a, b = made["a"], made["b"]
    comparison = compared(shared, a, "zzzzzzzzzz", b, skip_missing="true")
    assert comparison == compared(shared, a, b)
    assert compared(shared, "zzzzzzzzzz", skip_missing="true")["runs"] == []


def test_the_baseline_of_the_project_is_that_of_its_comparisons(shared, made):
    a, b, c = made["a"], made["b"], made["c"]
    assert compared(shared, a, b)["baseline"] is None
    shared.http.patch(f"/api/runs/{c}", json={"baseline": True})
    try:
        by_default = compared(shared, a, b)
        assert (by_default["baseline"], by_default["baseline_name"]) == (c, by_default["baseline_name"])
        assert by_default["runs"] == [a, b] and by_default == compared(shared, a, b, baseline=c)
        (loss,) = (row for row in by_default["series"] if row["name"] == "train/loss")
        assert set(loss["runs"]) <= {a, b} and loss["runs"][a]["best_change_percent"] is not None
        assert compared(shared, a, b, baseline="none")["baseline"] is None
        assert compared(shared, a, b, baseline="zzzzzzzzzz", skip_missing="true")["baseline"] is None
    finally:
        shared.http.patch(f"/api/runs/{c}", json={"baseline": False})


def test_a_baseline_that_does_not_exist_is_refused(shared, made):
    answer = shared.http.get("/api/compare", params={"runs": made["a"], "baseline": "zzzzzzzzzz"})
    assert answer.status_code == 404


def test_the_same_figure_of_different_loggers_is_one_series_that_says_so(rankzero, shared, made):
    logs, prints = made["logs"], made["prints"]
    comparison = compared(shared, logs, prints, baseline=prints)
    (loss,) = comparison["series"]
    assert (loss["name"], loss["own_names"]) == ("loss", {prints: "printed/loss"})
    assert {run: result["best"] for run, result in loss["runs"].items()} == {logs: 0.05, prints: 0.15}
    assert loss["runs"][logs]["best_change_percent"] == pytest.approx(-200 / 3)
    arguments = next(row for row in comparison["differences"] if row["field"] == "args.--lr")
    assert arguments["values"] == {logs: ["0.1"], prints: ["0.3"]} and "{lr}" not in json.dumps(comparison)
    joined = shared.http.get("/api/compare/joined", params={"runs": f"{logs},{prints}"})
    assert joined.json() == {prints: {"printed/loss": "loss"}}
    assert "loss (lowest), includes printed/loss" in rankzero("compare", logs, prints)[1]


def test_the_command_prints_the_document_and_a_table(rankzero, shared, made):
    a, b = made["a"], made["b"]
    code, out, err = rankzero("compare", a, "--baseline", b, "--json")
    assert (code, err, json.loads(out)) == (0, "", compared(shared, a, b, baseline=b))
    code, out, err = rankzero("compare", b, a, "--baseline", b)
    assert (code, err) == (0, "")
    assert "Learning rate" in out and "train/loss (lowest)" in out and "(±0 %)" in out
    assert "where a step goes" in out and "10 ms (−66.7 %)" in out
    sentence = "There is no run 'zzzzzzzzzz'; `rankzero runs` lists them.\n"
    assert rankzero("compare", a, "zzzzzzzzzz") == (1, "", sentence)


def test_the_command_groups_runs_and_writes_tables_for_other_programs(rankzero, made):
    ids = [made[name] for name in "abc"]
    code, out, err = rankzero("compare", *ids, "--group", "lr")
    assert (code, err) == (0, "") and "Learning rate" in out and " ± " in out and "%" not in out
    code, out, err = rankzero("compare", *ids, "--group", "lr", "--baseline", ids[0])
    assert re.search(r" ± [\d.]+ \([+-][\d.]+ %\)", out) and "(±0 %)" in out
    code, out, err = rankzero("compare", *ids, "--group", "lr", "--format", "csv")
    head, alone, pair = csv.reader(out.splitlines())
    assert head[:4] == ["Learning rate", "Runs", "train/loss (lowest) mean", "train/loss (lowest) spread"]
    assert alone[:2] == ["0.1", "1"] and alone[3] == "" and pair[1] == "2" and float(pair[3]) > 0
    crossed = ("compare", *ids, "--group", "lr", "--columns", "seed", "--result", "val/loss", "--format")
    code, out, err = rankzero(*crossed, "csv")
    head, one, other = csv.reader(out.splitlines())
    assert head[:3] == ["val/loss (lowest)", "seed 0 mean", "seed 0 spread"] and len(head) == 7
    assert one[0] == "0.1" and float(one[1]) > 0 and one[2:] == [""] * 5 and other[1] == "" != other[3]
    assert rankzero(*crossed, "latex")[1].startswith("\\begin{tabular}{lrrr}")
    assert rankzero("compare", *ids, "--columns", "seed")[0] == 2
    assert "must be a series" in rankzero(*crossed[:-2], "odd")[2]
    code, out, err = rankzero("compare", *ids, "--format", "markdown")
    assert out.splitlines()[0].startswith("|  | a (") and "| Learning rate | 0.1 | 0.2 | 0.2 |" in out
    assert "| Waiting for data | 10 ms | 30 ms | – |" in out
    lines = csv.reader(rankzero("compare", *ids, "--baseline", ids[0], "--format", "csv")[1].splitlines())
    cells = {line[0]: line[1:] for line in lines}
    assert cells["Waiting for data (s)"] == ["0.01", "0.03", ""]
    assert all(float(cell) > 0 for cell in cells["train/loss (lowest)"])
    assert "There is one run here." in rankzero("compare", ids[0])[1]
    code, out, err = rankzero("compare", *ids, "--group", "lr", "--format", "latex")
    assert out.startswith("\\begin{tabular}{lr") and " $\\pm$ " in out and r"train/samples\_per\_s" in out
    code, out, err = rankzero("compare", *ids, "--group", "nope")
    assert code == 1 and "do not differ in 'nope'. Group by one of: lr, seed" in err
