"""A worker's client sends collectives and hears the verdict; people read both under the documented names."""

from __future__ import annotations

import json

from cli.main import run
from domain.collectives import Collective, NodeCollectives, RankCollectives


def record(rank: int, operation: str) -> RankCollectives:
    call = Collective(group="0", sequence=7, operation=operation, sizes=[[3, 2]], dtypes=["Float"])
    return RankCollectives(rank=rank, world_size=3, calls=[call])


def test_a_worker_hears_the_verdict_that_people_read(dashboard, node) -> None:
    run_id = dashboard.launch(gpus_per_node=2)
    task = node.task()
    node.report(task, "running")
    empty = {"ranks": {}, "verdict": None}
    assert dashboard.http.get(f"/api/runs/{run_id}/collectives").json() == empty
    ranks = [record(0, "all_reduce"), record(1, "all_reduce"), record(2, "barrier")]
    verdict = node.client.collectives(task, NodeCollectives(is_stalled=True, ranks=ranks))
    assert verdict is not None and (verdict.kind, verdict.ranks) == ("operation", [2])
    answer = dashboard.http.get(f"/api/runs/{run_id}/collectives").json()
    assert answer["verdict"] == verdict.model_dump()
    assert answer["ranks"]["2"] == {
        "sequence": 7,
        "operation": "barrier",
        "sizes": [[3, 2]],
        "retired": False,
    }
    assert node.client.collectives(task, NodeCollectives()) is None
    assert dashboard.http.get(f"/api/runs/{run_id}/collectives").json() == empty


def test_the_command_line_shows_the_last_collectives_of_an_ended_run(dashboard, node, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.service.credentials.user)
    run_id, task = dashboard.launch(gpus_per_node=2), node.task()
    node.report(task, "running")
    ranks = [record(0, "all_reduce"), record(1, "barrier"), RankCollectives(rank=2, is_read=False)]
    node.client.collectives(task, NodeCollectives(is_stalled=True, ranks=ranks))
    node.report(task, "failed", reason="script error", message="It failed.")
    assert run(["collectives", run_id, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer.keys() == {"ranks", "verdict"} and answer["verdict"].keys() == {"kind", "ranks", "sentence"}
    assert answer["ranks"]["2"] == {"sequence": None, "operation": None, "sizes": [], "retired": None}
    assert run(["collectives", run_id]) == 0
    shown = capsys.readouterr().out
    assert "Rank 0 waits in all_reduce #7" in shown and "did not answer" in shown
