"""Collectives of the ranks of several nodes are compared in the store."""

from __future__ import annotations

import pytest

from db.exceptions import NoSuchRun, Superseded
from db.nodes.node_reports import register_node
from db.ranks.ranks import collectives, collectives_reported, verdict_of_attempt
from db.tasks.desired_state import assignments
from domain.collectives import Collective, NodeCollectives, RankCollectives
from domain.views import PositionView
from tests.db.cluster import facts, send_heartbeat


def node(rank: int, operation: str) -> NodeCollectives:
    call = Collective(group="0", sequence=7, operation=operation, sizes=[[3, 2]], dtypes=["Float"])
    return NodeCollectives(is_stalled=True, ranks=[RankCollectives(rank=rank, world_size=3, calls=[call])])


def test_ranks_of_all_nodes_are_compared_and_a_withdrawn_report_is_forgotten(cluster):
    store = cluster.store
    more = [register_node(store, facts(name), None, 100.0).node_id for name in ("gpu-2", "gpu-3")]
    for node_id in more:
        send_heartbeat(store, node_id, cluster.now)
    run_id = cluster.launch(nodes=3, gpus_per_node=1)
    assigned = {node_id: assignments(store, node_id)[0] for node_id in (cluster.node_id, *more)}
    for node_id, assignment in assigned.items():
        operation = "barrier" if assignment.node_rank == 2 else "all_reduce"
        collectives_reported(
            store, node_id, assignment.fence, assignment.node_rank, node(assignment.node_rank, operation)
        )
    answer = collectives(store, run_id)
    assert answer.ranks[2] == PositionView(7, "barrier", [[3, 2]], False)
    assert answer.verdict is not None
    assert (answer.verdict.kind, answer.verdict.ranks) == ("operation", [2])
    (last, assignment) = next(
        (node_id, assignment) for node_id, assignment in assigned.items() if assignment.node_rank == 2
    )
    collectives_reported(store, last, assignment.fence, 2, NodeCollectives())
    assert verdict_of_attempt(store, assignment.fence) is None


def test_unknown_run_stores_nothing(cluster):
    with pytest.raises(NoSuchRun):
        collectives(cluster.store, "nobody")
    with pytest.raises(Superseded):
        collectives_reported(cluster.store, cluster.node_id, 99, 0, NodeCollectives())
