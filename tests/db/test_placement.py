"""Placement gives all or nothing, never a device twice, and says why a run waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from db.placement import Offer, Waiting, place

waitings = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=8)
offers = st.lists(st.integers(0, 8), max_size=5)


def queue(sizes):
    return [Waiting(i, f"run{i}", nodes, devices) for i, (nodes, devices) in enumerate(sizes)]


def cluster(sizes):
    return [Offer(f"n{i}", f"gpu-{i}", 8, tuple(f"n{i}/{d}" for d in range(s))) for i, s in enumerate(sizes)]


@given(waitings, offers)
def test_all_devices_at_once_or_none_and_none_twice(sizes, free):
    waiting, nodes = queue(sizes), cluster(free)
    decision = place(waiting, nodes)
    assert set(decision.placed) | set(decision.waiting) == {w.fence for w in waiting}
    given_out = [d for chosen in decision.placed.values() for p in chosen for d in p.devices]
    assert len(given_out) == len(set(given_out))
    for w in waiting:
        if w.fence in decision.placed:
            chosen = decision.placed[w.fence]
            assert len({p.node_id for p in chosen}) == w.nodes
            assert all(len(p.devices) == w.devices_per_node for p in chosen)


@given(waitings, offers)
def test_nobody_overtakes(sizes, free):
    decision = place(queue(sizes), cluster(free))
    if decision.placed and decision.waiting:
        assert max(decision.placed) < min(decision.waiting)


def test_large_free_nodes_stay_whole():
    decision = place(queue([(1, 2)]), cluster([8, 2]))
    assert decision.placed[0][0].node_id == "n1"


def test_a_waiting_run_is_told_what_it_needs_and_what_is_there():
    decision = place(queue([(2, 4), (1, 1)]), cluster([4, 1]))
    assert (
        decision.waiting[0] == "needs 2 nodes with 4 free slots; gpu-0 has 4 of 8 free, gpu-1 has 1 of 8 free"
    )
    assert decision.waiting[1] == "waits behind run run0, which came first"
    assert place(queue([(1, 1)]), []).waiting[0] == "needs 1 node with 1 free slot; no node is alive"
