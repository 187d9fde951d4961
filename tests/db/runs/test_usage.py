"""A run's device-hours over all attempts, the energy its devices counted, and its hardware by node."""

from __future__ import annotations

import pytest

from db.exceptions import NoSuchNode, NoSuchRun
from db.metrics import curves
from db.metrics.performance import Usage, hardware_names, usage
from db.runs import run_queries

pytestmark = pytest.mark.both_stores


@pytest.fixture
def trained(cluster):
    run_id = cluster.launch(gpus_per_node=2)
    (task,) = cluster.assignments()
    cluster.report(task.fence, "running")
    return cluster, run_id, task.fence


def test_device_hours_count_from_the_placement_to_the_end(trained):
    cluster, run_id, fence = trained
    assert usage(cluster.store, run_id, 100.0 + 3600) == Usage(2.0, None)
    cluster.now = 100.0 + 1800
    cluster.report(fence, "succeeded")
    assert usage(cluster.store, run_id, 1e6) == Usage(1.0, None)
    with pytest.raises(NoSuchRun):
        usage(cluster.store, "nobody", 0.0)


def test_energy_is_what_the_devices_counters_grew_by(trained):
    cluster, run_id, fence = trained
    grown = {
        "gpu0/energy_j": [(0, 1000.0, 101.0), (9, 4000.0, 102.0)],
        "gpu1/energy_j": [(0, 50.0, 101.0), (9, 70.0, 102.0)],
        "gpu1/power_w": [(9, 500.0, 102.0)],
    }
    cluster.points(fence, 0, 10, grown, source="hardware")
    cluster.points(fence, 10, 20, {"gpu0/energy_j": [(12, 4500.0, 103.0)]}, source="hardware")
    assert usage(cluster.store, run_id, 103.0).energy_j == 3520.0


def test_hardware_has_a_source_of_its_own_and_can_be_asked_for_by_node(trained):
    cluster, run_id, fence = trained
    cluster.points(fence, 0, 10, {"cpu_percent": [(3, 40.0, 101.0)]}, source="hardware")
    assert curves.series(cluster.store, run_id) == {}
    assert run_queries.run(cluster.store, run_id, 102.0).step is None
    for node in (None, "0", "gpu-1"):
        assert hardware_names(cluster.store, run_id, node) == ["hardware/cpu_percent"]
    series = curves.series(cluster.store, run_id, source="hardware")
    assert series["hardware/cpu_percent"].points == [(3, 40.0, 101.0)]
    for node in ("1", "gpu-9"):
        with pytest.raises(NoSuchNode, match="has no node"):
            hardware_names(cluster.store, run_id, node)
