"""A pattern of printed lines over HTTP: what it reads is shown, and a live run's node gets it at once."""

from __future__ import annotations

from tests.dashboard.running import FakeNode, Running

LINES = "hello\n" + "".join(f"now loss: 0.{i} acc: {i}%\n" for i in range(1, 7)) + "now loss: nan acc: 7%\nhalf"
PATTERN = "now loss: {loss} acc: {acc}"


def test_the_newest_lines_that_fit_are_shown(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(name="prints", gpus_per_node=2)
    address = f"/api/runs/{run_id}/logs/pattern"
    assert dashboard.http.get(address, params={"pattern": PATTERN}).json()["lines"] == 0
    task = node.task()
    node.report(task, "starting")
    node.append(task, "logs/rank0.out", 0, 0, LINES.encode())
    seen = dashboard.http.get(address, params={"pattern": PATTERN}).json()
    assert (seen["number"], seen["lines"]) == (7, 9)
    assert [line["values"]["acc"] for line in seen["fitting"]] == [4, 5, 6, 7]
    assert seen["fitting"][-1] == {
        "line": "now loss: nan acc: 7%", "step": None, "epoch": None, "values": {"loss": "NaN", "acc": 7.0},
    }  # fmt: skip
    stepped = dashboard.http.get(address, params={"pattern": "now loss: 0.{*} acc: {step}% {*}"})
    assert stepped.status_code == 422 and stepped.json()["detail"]["field"] == "pattern"
    assert "at least one value" in stepped.json()["detail"]["message"]


def test_the_last_ranks_lines_are_shown_where_only_they_fit(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(name="prints", gpus_per_node=2)
    task = node.task()
    node.report(task, "starting")
    node.append(task, "logs/rank0.out", 0, 0, b"hello\n")
    node.append(task, "logs/rank1.out", 0, 0, b"[rank1]: 7) 0.5\n" + b"x" * 100_000 + b"\n8) 0.25\n")
    seen = dashboard.http.get(f"/api/runs/{run_id}/logs/pattern", params={"pattern": "{step}) {loss}"}).json()
    assert [(line["step"], line["values"]) for line in seen["fitting"]] == [(8, {"loss": 0.25})]


def test_a_live_runs_node_gets_the_pattern(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch(name="prints")
    address = f"/api/runs/{run_id}"
    assert dashboard.http.patch(address, json={"printed_pattern": f" {PATTERN} "}).status_code == 200
    assert node.assignment().spec.printed_pattern == PATTERN
    assert dashboard.http.get(address).json()["spec"]["printed_pattern"] == PATTERN
    for wrong in ("loss {loss", "no name", "{a}" + "x" * 500, "{a}\0"):
        assert dashboard.http.patch(address, json={"printed_pattern": wrong}).status_code == 422
    assert dashboard.http.patch(address, json={"printed_pattern": PATTERN}).status_code == 200
    assert dashboard.http.patch(address, json={"printed_pattern": ""}).status_code == 200
    assert node.assignment().spec.printed_pattern is None
    history = [line["text"] for line in dashboard.http.get(f"{address}/history").json()]
    history_lines = [text for text in history if text.startswith("printed lines are read by")]
    assert history_lines == [f"printed lines are read by {PATTERN}", "printed lines are read by the rules alone"]
