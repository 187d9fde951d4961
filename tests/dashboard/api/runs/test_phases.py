"""Phases of a run's ranks over HTTP and on the command line, and the finding that follows from them."""

from __future__ import annotations

import json

import pytest

from cli import main
from dashboard.service.live_attempts import SlowRanks
from domain.messages import PointBatch
from domain.performance.phases import PHASES, TAG, PhaseTotals
from tests.dashboard.running import FakeNode, Running
from tests.domain.performance.rank_means import ranks_of


def send(node: FakeNode, ranks: list[PhaseTotals]) -> None:
    """Send totals as the worker sends them."""
    series = {
        TAG.format(rank=totals.rank, name=name): list(zip(totals.steps, seconds, totals.walls, strict=True))
        for totals in ranks
        for name, seconds in totals.seconds.items()
    }
    node.points(
        node.task(),
        PointBatch(path="probe/7.jsonl", generation=0, start=0, end=10, source="probe", series=series),
    )


@pytest.fixture
def run_id(dashboard: Running, node: FakeNode) -> str:
    launched = str(dashboard.launch(target="image_classifier", gpus_per_node=2))
    node.report(node.task(), "running")
    return launched


def test_the_breakdown_adds_up_and_the_slow_rank_is_named(
    dashboard: Running, node: FakeNode, run_id: str, monkeypatch, capfd
) -> None:
    send(node, ranks_of({}, {"data_s": 0.1}))
    divided = dashboard.http.get(f"/api/runs/{run_id}/phases").json()
    assert divided["slow"] == [{"rank": 1, "node": "n0", "cause": "data", "lost_share": pytest.approx(0.62, abs=0.01)}]
    for means in divided["ranks"].values():
        assert set(means) == {"steps", "step_s", *PHASES}
        assert sum(means[name] for name in PHASES) == pytest.approx(means["step_s"]) == pytest.approx(0.161)
    assert divided["ranks"]["1"]["data_s"] == pytest.approx(0.102)
    late = dashboard.http.get(f"/api/runs/{run_id}/phases?rank=0&since=100").json()
    assert (set(late["ranks"]), late["ranks"]["0"]["steps"]) == ({"0"}, 200)
    monkeypatch.setenv("RANKZERO_URL", dashboard.url)
    monkeypatch.setenv("RANKZERO_TOKEN", dashboard.bearer["Authorization"].removeprefix("Bearer "))
    assert main.run(["phases", run_id, "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == divided
    assert main.run(["phases", run_id]) == 0
    assert "The others wait for rank 1 on n0 (data): 62% of every step is lost." in capfd.readouterr().out


def test_the_finding_comes_and_goes_with_the_slow_rank(dashboard: Running, node: FakeNode, run_id: str) -> None:
    dashboard.service.slow_ranks._may_note = lambda: False  # only this test judges
    judge = SlowRanks(dashboard.service.store, dashboard.service.run_changed, lambda: True)
    judge.update(0.0)
    assert dashboard.http.get(f"/api/runs/{run_id}/findings").json() == []
    send(node, ranks_of({}, {"data_s": 0.1}))
    judge.update(5.0)
    assert dashboard.http.get(f"/api/runs/{run_id}/findings").json() == []
    judge.update(10.0)
    (finding,) = dashboard.http.get(f"/api/runs/{run_id}/findings").json()
    assert finding["evidence"] == (
        "Rank 1 on n0 waits 102 ms of 161 ms for data; the other 2 ms: both ranks lose 62 % of their time."
    )
    assert dashboard.run(run_id)["finding"].startswith("slow rank: Rank 1")


def test_phases_over_time_share_their_spans(dashboard: Running, node: FakeNode, run_id: str) -> None:
    path = f"/api/runs/{run_id}/phases"
    assert dashboard.http.get(path).json() == {"ranks": {}, "slow": []}
    assert dashboard.http.get(f"{path}/spans").json()["ranks"] == []
    first, second = ranks_of({}, {"data_s": 0.1}, records=200)
    shorter = PhaseTotals(
        1, "", second.steps[:100], second.walls[:100], {n: s[:100] for n, s in second.seconds.items()}
    )
    send(node, [first, shorter])
    spans = dashboard.http.get(f"{path}/spans").json()
    assert (spans["steps"][0], spans["steps"][-1], len(spans["steps"])) == (11, 2001, 121)
    assert spans["walls"][-1] == 1199.0
    data = [rank["seconds"]["data_s"] for rank in spans["ranks"]]
    assert data[0] == pytest.approx([0.002] * 120)
    assert data[1][0] == pytest.approx(0.102) and data[1][-1] is None
