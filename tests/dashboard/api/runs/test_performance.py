"""The start and the hardware of a run over HTTP, in the shapes that scripts rely on."""

from __future__ import annotations

from domain.messages import PointBatch
from tests.dashboard.running import FakeNode, Running


def test_the_phases_of_a_start(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    placed_at = dashboard.service.clock()
    ends = [{"phase": "placed", "at": placed_at + 1}, {"phase": "first step", "at": placed_at + 9}]
    node.report(node.task(), "running", timeline=ends)
    phases = dashboard.http.get(f"/api/runs/{run_id}/timeline").json()
    assert [(phase["node"], phase["phase"]) for phase in phases] == [
        ("n0", "queued"), ("n0", "placed"), ("n0", "first step"),
    ]  # fmt: skip
    assert all(set(phase) == {"node", "phase", "started_at", "seconds"} for phase in phases)
    assert phases[-1]["seconds"] == 8.0
    assert dashboard.http.get("/api/runs/abcdefghij/timeline").status_code == 404


def test_hardware_is_answered_as_metrics_are(dashboard: Running, node: FakeNode) -> None:
    run_id = dashboard.launch()
    task = node.task()
    node.report(task, "running")
    series = {"gpu0/power_w": [(3, 540.5, 100.0)], "event/gpu0: Xid 79": [(3, 79.0, 100.0)]}
    batch = PointBatch(path="hardware.jsonl", generation=0, start=0, end=9, source="hardware", series=series)
    node.points(task, batch)
    node.points(task, batch.model_copy(update={"start": 9, "end": 12, "series": {}}))
    hardware = f"/api/runs/{run_id}/hardware"
    assert dashboard.http.get(hardware).json() == {
        "hardware/event/gpu0: Xid 79": [[3, 79.0, 100.0]],
        "hardware/gpu0/power_w": [[3, 540.5, 100.0]],
    }
    assert dashboard.http.get(hardware, params={"node": "n0"}).json().keys() == {
        "hardware/event/gpu0: Xid 79", "hardware/gpu0/power_w",
    }  # fmt: skip
    assert dashboard.http.get(hardware, params={"node": "n9"}).status_code == 404
    assert dashboard.http.get(f"/api/runs/{run_id}/metrics").json() == {}
    assert dashboard.http.get(f"/api/runs/{run_id}/usage").json()["energy_j"] is None
