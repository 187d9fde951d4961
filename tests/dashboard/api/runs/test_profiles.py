"""A profile is requested, answered by a worker, shown and downloaded; Perfetto's page is confined."""

from __future__ import annotations

import json
import re
from typing import Any

from cli.main import run
from domain.messages import PointBatch
from domain.profiles.records import Overview, RankProfile

TRACE = b"a packed trace"
OPERATOR = {"name": "aten::mm", "calls": 20, "self_s": 0.5, "total_s": 0.6}
OVERVIEW: dict[str, Any] = {
    "steps": 10, "seconds": 1.0, "data_s": 0.0, "communication_s": 0.2, "exposed_communication_s": 0.15,
    "gaps": {"count": 3, "total_s": 0.1, "longest_s": 0.05}, "operators": [OPERATOR], "advice": ["Wait less."],
}  # fmt: skip


def training(dashboard, node) -> tuple[str, Any]:
    """A run with two ranks that step, on one node."""
    run_id, task = dashboard.launch(gpus_per_node=2), node.task()
    node.report(task, "running")
    now = dashboard.service.clock()
    series = {f"rank{rank}/step_time_s": [(40, 0.1, now)] for rank in (0, 1)}
    batch = PointBatch(path="probe/1.jsonl", generation=0, start=0, end=9, source="probe", series=series)
    node.points(task, batch)
    return run_id, task


def record(node, task, profile_id: str, rank: int) -> None:
    path = f"profiles/{profile_id}/trace{rank}.json.gz"
    node.append(task, path, 0, 0, TRACE)
    outcome = RankProfile(
        profile=profile_id, rank=rank, state="recorded", file=path, size_bytes=len(TRACE), step_s_before=0.08,
        overview=Overview(**OVERVIEW), flame=[(0, "train.py(1): main", 1.0)],
    )  # fmt: skip
    node.client.profile(task, outcome)


def test_a_profile_travels_to_the_worker_and_back(dashboard, node) -> None:
    run_id, task = training(dashboard, node)
    path = f"/api/runs/{run_id}/profiles"
    requested = dashboard.http.post(path, json={"steps": 10, "ranks": [0]})
    assert (requested.status_code, requested.json()["state"]) == (202, "recording")
    assert dashboard.http.post(path).status_code == 409, "one at a time"
    profile_request = node.assignment().profile
    assert (profile_request.id, profile_request.ranks, profile_request.steps) == (requested.json()["id"], [0], 10)
    record(node, task, profile_request.id, 0)
    assert node.assignment().profile is None
    answer = dashboard.http.get(f"{path}/{profile_request.id}").json()
    assert answer["state"] == "recorded" and dashboard.http.get(path).json() == [answer]
    (file,) = answer["files"]
    trace = dashboard.http.get(file["path"])
    assert trace.content == TRACE and file["name"] in trace.headers["content-disposition"]
    flame = dashboard.http.get(f"{path}/{profile_request.id}/ranks/0/flame").json()
    assert flame == [[0, "train.py(1): main", 1.0]]
    assert dashboard.http.get(f"{path}/{profile_request.id}/ranks/1/trace").status_code == 404


def test_the_command_line_waits_for_the_ranks_and_prints_the_overview(dashboard, node, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.token)
    run_id, task = training(dashboard, node)
    monkeypatch.setattr(
        "cli.commands.runs.performance.time.sleep",
        lambda _: record(node, task, node.assignment().profile.id, 1),
    )
    assert run(["profile", run_id, "--ranks", "1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"id", "state", "ranks", "steps", "files"} <= document.keys()
    assert (document["state"], document["ranks"], document["steps"]) == ("recorded", [1], 10)
    assert run(["profile", run_id, "--ranks", "1"]) == 0
    shown = capsys.readouterr().out
    for part_of_it in (
        "By this run's last profile",
        "no device was recorded",
        "aten::mm",
        "100 ms",
        "80 ms",
        "15 ms (15%)",
        "Wait less.",
    ):
        assert part_of_it in shown
    assert run(["profile", run_id, "--ranks", "x"]) == 2
    node.report(task, "succeeded")
    assert run(["profile", run_id]) == 1
    assert "only ranks that train can be profiled" in capsys.readouterr().err


def test_profile_of_another_run_foretells_the_cost(dashboard, node) -> None:
    first, task = training(dashboard, node)
    answer = dashboard.http.post(f"/api/runs/{first}/profiles", json={"ranks": [0]}).json()
    assert "No run has been profiled here yet" in answer["cost"]
    record(node, task, answer["id"], 0)
    again = dashboard.http.post(f"/api/runs/{first}/profiles", json={"ranks": [0]}).json()
    assert again["cost"].startswith("By this run's last profile: about 25% slower")
    node.report(task, "succeeded")
    second, _ = training(dashboard, node)
    answer = dashboard.http.post(f"/api/runs/{second}/profiles").json()
    assert answer["cost"].startswith(f"By the last profile here, of run {first}: about 25% slower")
    assert "in each of 2 ranks" in answer["cost"]


def test_perfetto_is_confined_and_needs_the_login(dashboard, node) -> None:
    run_id = dashboard.launch()
    page = dashboard.http.get(f"/perfetto/{run_id}/")
    assert page.status_code == 200 and "frame-ancestors 'none'" in page.headers["content-security-policy"]
    match = re.search(r'src="([^"]+)/index.html"', page.text)
    assert match is not None
    stranger = dashboard.anonymous()
    assert stranger.get(f"/perfetto/{run_id}/").status_code == 401
    framed = stranger.get(f"/perfetto/{run_id}/{match[1]}/index.html")
    policy = framed.headers["content-security-policy"]
    assert framed.status_code == 200 and "sandbox allow-scripts" in policy
    assert "allow-same-origin" not in policy and "frame-ancestors 'self'" in policy
    assert re.search(r"connect-src http://\S+/perfetto/ https://\S+/perfetto/ blob: data:;", policy)
    script = stranger.get(f"/perfetto/{run_id}/{match[1]}/frontend_bundle.js")
    assert (script.status_code, script.headers["access-control-allow-origin"]) == (200, "null")
    assert stranger.get(f"/perfetto/{run_id}/{match[1]}/%2e%2e/%2e%2e/viewer.py").status_code == 404
    assert stranger.get(f"/perfetto/{'a' * 10}/{match[1]}/frontend_bundle.js").status_code == 401
    assert stranger.get(f"/tensorboard/{run_id}/{match[1]}/").status_code == 401
