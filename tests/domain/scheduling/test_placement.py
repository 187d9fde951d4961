"""Placement gives all or nothing, never a device twice, and lets small runs pass only where it delays nobody."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.scheduling.models import Pools, natural_order
from domain.scheduling.placement import place, turn
from tests.db.clusters import Simulation, crowds, host, hosts, queues, want


def names(decision, fence):
    return [placement.node_id.removeprefix("id-") for placement in decision.placed[fence]]


@given(queues(), hosts())
def test_all_devices_at_once_or_none_and_none_twice(queue, nodes):
    decision = place(queue, nodes, 0.0)
    assert set(decision.placed) | set(decision.waiting) == {w.fence for w in queue}
    assert not set(decision.placed) & set(decision.waiting)
    given_out = [d for chosen in decision.placed.values() for p in chosen for d in p.devices]
    assert len(given_out) == len(set(given_out))
    for w in queue:
        if w.fence in decision.placed:
            chosen = decision.placed[w.fence]
            assert w.fewest <= len({p.node_id for p in chosen}) == len(chosen) <= w.nodes
            assert all(len(p.devices) == w.devices_per_node for p in chosen)
        else:
            assert decision.waiting[w.fence].reason.startswith("needs ")


@given(queues(), hosts())
def test_only_free_devices_of_nodes_that_were_asked_for_and_can_be_used(queue, nodes):
    by_id = {node.node_id: node for node in nodes}
    decision = place(queue, nodes, 0.0)
    for w in queue:
        kinds = set()
        for placement in decision.placed.get(w.fence, []):
            node = by_id[placement.node_id]
            kinds.add(node.kind)
            assert set(placement.devices) <= set(node.free)
            assert node.contact == "alive" and not node.draining
            assert not w.on_nodes or node.name in w.on_nodes
            assert w.labels.items() <= node.labels.items()
        assert len(kinds) < 2


@given(queues(), hosts(), st.randoms())
def test_the_same_whatever_the_order_of_what_it_is_told(queue, nodes, random):
    decision = place(queue, nodes, 3.0)
    random.shuffle(queue)
    random.shuffle(nodes)
    assert place(queue, nodes, 3.0) == decision


@given(queues(), hosts())
def test_whoever_is_first_and_has_room_starts(queue, nodes):
    decision = place(queue, nodes, 0.0)
    if queue:
        first = min(queue, key=turn)
        assert (first.fence in decision.placed) == (first.fence in place([first], nodes, 0.0).placed)


@settings(max_examples=3 * settings.default.max_examples)
@given(st.tuples(queues(), hosts()) | crowds())
def test_who_passes_changes_nothing_for_the_first_in_line(drawn):
    queue, nodes = drawn
    decision = place(queue, nodes, 0.0)
    waiting = sorted((w for w in queue if w.fence in decision.waiting), key=turn)
    if not waiting:
        return
    before = [w for w in queue if turn(w) <= turn(waiting[0])]
    alone = place(before, nodes, 0.0)
    assert {f: p for f, p in decision.placed.items() if f in {w.fence for w in before}} == alone.placed
    assert decision.waiting[waiting[0].fence].starts_at == alone.waiting[waiting[0].fence].starts_at


@settings(max_examples=3 * settings.default.max_examples)
@given(crowds(known=True))
def test_with_true_estimates_the_first_in_line_starts_when_it_was_foretold_or_before(drawn):
    queue, nodes = drawn
    simulation = Simulation(list(nodes))
    simulation.run(queue)
    for fence, (_, promise) in simulation.promised.items():
        assert simulation.started[fence] <= promise


@settings(max_examples=2 * settings.default.max_examples)
@given(st.tuples(queues(), hosts(is_plain=True)) | crowds(), st.integers(1, 40))
def test_fitting_run_never_waits_for_ever(drawn, secret_s):
    queue, nodes = drawn
    simulation = Simulation(list(nodes), float(secret_s))
    simulation.run(queue)
    pools = Pools(nodes)
    assert set(simulation.started) == {w.fence for w in queue if pools.of(w).fits(w)}


@given(queues(), hosts())
def test_who_makes_do_with_fewer_gets_no_less_than_who_does_not(queue, nodes):
    """The first in line gets as many nodes as could be free for it alone, whatever the others want."""
    if not queue:
        return
    first = min(queue, key=turn)
    got = place(queue, nodes, 0.0).placed.get(first.fence, [])
    for most in range(first.fewest, first.nodes + 1):
        strict = replace(first, nodes=most, fewest_nodes=None)
        fits = Pools(nodes).of(strict).kind == Pools(nodes).of(first).kind
        if fits and first.fence in place([strict], nodes, 0.0).placed:
            assert len(got) >= most


def test_a_run_that_makes_do_with_fewer_gets_what_there_is_up_to_what_it_names():
    elastic = want(0, nodes=3, devices=2, fewest_nodes=2)
    nodes = [host("a", 2), host("b", 2), host("c", 2), host("d", 2)]
    for count, got in (1, None), (2, 2), (3, 3), (4, 3):
        decision = place([elastic], nodes[:count], 0.0)
        assert len(decision.placed.get(0, ())) == (got or 0)


def test_a_run_that_makes_do_with_fewer_waits_for_the_fewest_and_keeps_no_more_from_others():
    nodes = [host("a", 0, [("old", 1, 9.0)]), host("b", 0, [("older", 1, 9.0)]), host("c", 1)]
    decision = place([want(0, nodes=3, fewest_nodes=2), want(1)], nodes, 0.0)
    assert decision.waiting[0].starts_at == 9.0
    assert set(decision.waiting) == {0, 1}  # c is one of the two
    nodes[1] = host("b", 1)
    assert set(place([want(0, nodes=3, fewest_nodes=2), want(1)], nodes, 0.0).placed) == {0}


def test_large_free_nodes_stay_whole():
    decision = place([want(0, devices=2)], [host("a", 8), host("b", 2)], 0.0)
    assert names(decision, 0) == ["b"]


def test_node_ranks_are_in_the_order_of_names():
    decision = place([want(0, nodes=3)], [host("gpu-10", 3), host("gpu-9", 2), host("gpu-2", 1)], 0.0)
    assert names(decision, 0) == ["gpu-2", "gpu-9", "gpu-10"]
    assert sorted(["b10", "b9", "b", "a1b"], key=natural_order) == ["a1b", "b", "b9", "b10"]


def test_a_higher_priority_goes_first_then_who_came_first():
    queue = [want(0), want(1), want(2, priority=1)]
    assert set(place(queue, [host("a", 2)], 0.0).placed) == {2, 0}


def test_a_short_run_passes_where_it_ends_before_the_first_in_line_can_start():
    nodes = [host("a", 4, [("old", 4, 100.0)])]
    first, short, long, silent = (
        want(0, devices=8),
        want(1, devices=2, duration_s=100.0),
        want(2, devices=2, duration_s=101.0),
        want(3, devices=2),
    )
    decision = place([first, long, silent, short], nodes, 0.0)
    assert set(decision.placed) == {1}
    assert decision.waiting[0].starts_at == 100.0


def test_a_run_that_does_not_say_when_it_ends_passes_only_where_the_first_in_line_needs_nothing():
    nodes = [host("a", 4, [("old", 4, 100.0)]), host("b", 1, [("older", 7, None)])]
    decision = place([want(0, devices=8), want(1), want(2)], nodes, 0.0)
    assert names(decision, 1) == ["b"]
    assert 2 in decision.waiting
    spare = place([want(0, devices=6), want(1, devices=2), want(2)], [nodes[0]], 0.0)
    assert set(spare.placed) == {1}


def test_while_nobody_can_tell_when_the_first_in_line_starts_its_node_is_kept():
    nodes = [host("a", 4, [("old", 4, None)]), host("b", 3, [("older", 5, None)])]
    decision = place([want(0, devices=8), want(1, devices=4), want(2, devices=3)], nodes, 0.0)
    assert names(decision, 2) == ["b"]
    assert set(decision.waiting) == {0, 1}
    assert decision.waiting[0].starts_at is None


def test_a_run_that_cannot_start_on_the_nodes_there_are_keeps_nothing_from_others():
    first = want(0, nodes=2, devices=8, waits_for_nodes=True)
    assert set(place([first, want(1)], [host("a", 8)], 0.0).placed) == {1}
    assert set(place([want(0, devices=8), want(1)], [host("a", 7, foreign=1)], 0.0).placed) == {1}


def test_runs_for_different_nodes_have_each_their_own_first_in_line():
    nodes = [
        host("a", 1, [("old", 1, 9.0)], labels={"rack": "a"}),
        host("b", 1, [("older", 1, 9.0)], labels={"rack": "b"}),
    ]
    queue = [want(0, devices=2, labels={"rack": "a"}), want(1, devices=2, labels={"rack": "b"}), want(2)]
    assert set(place(queue, nodes, 0.0).placed) == set()


def test_gpus_are_preferred_and_never_mixed_with_cpu_slots():
    mixed = [host("gpu", 2, [("old", 2, None)]), host("cpu", 16, kind="cpu")]
    assert names(place([want(0, devices=2)], mixed, 0.0), 0) == ["gpu"]
    assert set(place([want(0, devices=4)], mixed, 0.0).waiting) == {0}
    assert names(place([want(0, devices=8)], mixed, 0.0), 0) == ["cpu"]
    assert names(place([want(0, on_nodes=("cpu",))], mixed, 0.0), 0) == ["cpu"]
    assert set(place([want(0, nodes=2)], mixed, 0.0).waiting) == {0}


def test_an_overdue_run_may_end_at_any_moment_and_lets_nobody_pass():
    decision = place([want(0, devices=2), want(1, duration_s=1.0)], [host("a", 1, [("old", 1, 5.0)])], 60.0)
    assert set(decision.waiting) == {0, 1}
    assert decision.waiting[0].starts_at == 60.0
