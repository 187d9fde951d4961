"""A run that ended with a checkpoint that is not whole on the server says so."""

from __future__ import annotations

from db.checkpoints import checkpoint_reports
from db.findings.findings import KIND, findings
from db.runs import run_queries
from tests.db.attempts.offers import offer, store_checkpoint


def ended_with_partial(cluster) -> tuple[str, int]:
    run_id = cluster.launch()
    fence = cluster.assignments()[0].fence
    cluster.report(fence, "running")
    row = checkpoint_reports.offered(cluster.store, cluster.node_id, fence, 0, offer(path="work/a.pt"), cluster.now)
    checkpoint_reports.received(cluster.store, row.id, 1)
    assert findings(cluster.store, run_id) == []  # it is on its way
    cluster.report(fence, "succeeded", exit_code=0)
    return run_id, fence


def test_a_succeeded_run_tells_of_a_checkpoint_that_never_arrived(cluster):
    run_id, _ = ended_with_partial(cluster)
    (finding,) = findings(cluster.store, run_id, 1)
    assert finding.kind == KIND and finding.evidence.startswith("work/a.pt: 1 B of ")
    assert f"runs/{run_id}/attempts/1/node0/" in finding.fix and finding.gone_at is None
    assert (run_queries.run(cluster.store, run_id, cluster.now).finding or "").startswith(f"{KIND}: work/a.pt")


def test_a_whole_copy_of_the_same_file_is_enough(cluster):
    run_id, fence = ended_with_partial(cluster)
    store_checkpoint(cluster, fence, path="work/a.pt", sha="b" * 64)
    assert findings(cluster.store, run_id) == []
