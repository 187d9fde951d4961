"""How a node's disk filled, as both stores have it: the latest samples, and what is free by the last heartbeat."""

from __future__ import annotations

from dashboard.alerts.watch import SeriesRules
from db.alerts import alerts
from db.alerts.run_facts import disks, run_facts
from domain.alerts.rules import parse_rule
from domain.messages import NodeLoad
from tests.db.cluster import Cluster, send_heartbeat

GIB = 1024**3


def test_a_disk_that_fills_is_told_of_and_a_silent_node_says_nothing(cluster: Cluster) -> None:
    cluster.launch(name="digits", gpus_per_node=2)
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "running")
    samples = [(n // 10, GIB * n / 180.0, 1000.0 + 5 * n) for n in range(1000)]
    for start in range(0, 1000, 250):
        series = {"disk_used_bytes": samples[start : start + 250]}
        cluster.points(fence, start, start + 250, series, source="hardware")
    now = 1000.0 + 5 * 999
    assert disks(cluster.store, fence, now) == [], "its last heartbeat is old"
    send_heartbeat(cluster.store, cluster.node_id, now)
    assert disks(cluster.store, fence, now) == [], "it did not say what is free"
    load = NodeLoad(disk_free_bytes=8 * GIB, disk_total_bytes=100 * GIB)
    send_heartbeat(cluster.store, cluster.node_id, now, load)
    (disk,) = disks(cluster.store, fence, now)
    assert (disk.node, disk.node_rank, disk.free_bytes) == ("gpu-1", 0, 8 * GIB)
    assert disk.samples[-1] == (now, samples[-1][1]) and 512 < len(disk.samples) <= 768
    alert = alerts.alert(cluster.store, alerts.create(cluster.store, "disk-full=3h", "slack://", None, 1.0))
    (run,) = run_facts(cluster.store, 0.0)
    for rule, expected in (("disk-full=1h", []), ("disk-full=3h", ["digits: the disk of gpu-1 is full"])):
        curve_events = SeriesRules(cluster.store).events(alert, parse_rule(rule), run, now)
        assert [event.sentence[:33] for event in curve_events] == expected


def test_a_gpu_that_a_run_has_for_nothing_is_told_of_by_its_samples(cluster: Cluster) -> None:
    cluster.launch(name="digits", gpus_per_node=2)
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "running")
    for start in range(0, 1000, 250):
        moments = [1000.0 + 5 * n for n in range(start, start + 250)]
        series = {
            "gpu0/utilisation_percent": [(n, 97.0, at) for n, at in enumerate(moments, start)],
            "gpu1/utilisation_percent": [(n, 0.0, at) for n, at in enumerate(moments, start)],
            "gpu1/processes": [(n, 0.0, at) for n, at in enumerate(moments, start)],
        }
        cluster.points(fence, start, start + 250, series, source="hardware")
    now = 1000.0 + 5 * 999
    alert = alerts.alert(cluster.store, alerts.create(cluster.store, "idle-gpu=1h", "slack://", None, 1.0))
    (run,) = run_facts(cluster.store, 0.0)
    for rule, expected in (("idle-gpu=1h", 1), ("idle-gpu=2h", 0)):
        found = list(SeriesRules(cluster.store).events(alert, parse_rule(rule), run, now))
        assert len(found) == expected
    (event,) = SeriesRules(cluster.store).events(alert, parse_rule("idle-gpu=1h"), run, now)
    assert event.sentence.startswith("digits: GPU 1 of the run on gpu-1 has been idle for 60 min: no process")
