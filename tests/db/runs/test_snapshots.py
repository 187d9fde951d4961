"""Which code the store knows of, and when it forgets it."""

from __future__ import annotations

from db.runs import deletion, run_requests, snapshots
from tests.db.cluster import Cluster

A, B = "a" * 64, "b" * 64


def test_the_same_content_is_kept_once_with_its_newest_origin(cluster: Cluster) -> None:
    snapshots.keep(cluster.store, A, 10, 1, {"kind": "script"}, 100.0)
    snapshots.keep(cluster.store, A, 10, 1, None, 200.0)
    snapshot = snapshots.find(cluster.store, A)
    assert snapshot == snapshots.SnapshotView(A, 10, 1, {"kind": "script"}, 100.0)
    snapshots.keep(cluster.store, A, 10, 1, {"kind": "folder"}, 200.0)
    assert snapshots.find(cluster.store, A) == snapshots.SnapshotView(A, 10, 1, {"kind": "folder"}, 100.0)
    assert snapshots.find(cluster.store, B) is None


def test_snapshot_without_a_run_is_deleted(cluster: Cluster) -> None:
    for sha256 in (A, B):
        snapshots.keep(cluster.store, sha256, 10, 1, {}, 100.0)
    runs = [cluster.launch(target="/x", entry="x.py", snapshot=A) for _ in range(2)]
    assert snapshots.forget_unused(cluster.store, besides=[B]) == []
    assert snapshots.forget_unused(cluster.store, besides=[]) == [B]
    for run_id, gone in zip(runs, ([], [A]), strict=True):
        run_requests.request_stop(cluster.store, run_id, 101.0)
        for task in cluster.assignments():
            cluster.report(task.fence, "stopped")
        deletion.erase(cluster.store, run_id, cluster.now)
        assert snapshots.forget_unused(cluster.store, besides=[]) == gone


def test_young_snapshot_is_kept_for_another_dashboard(store):
    snapshots.keep(store, "a" * 64, 1, 1, None, 100.0)
    assert snapshots.forget_unused(store, [], made_before=100.0) == []
    assert snapshots.forget_unused(store, [], made_before=101.0) == ["a" * 64]
