"""A run that makes do with fewer nodes: what its attempts get, and what is said of them."""

from __future__ import annotations

import pytest

from db import nodes, queries, requests, scheduling
from db.spec import RunSpec
from db.states import State
from tests.db.cluster import Cluster, facts


class Rack(Cluster):
    """Several nodes with two slots each, on which every part is reported at once."""

    def join(self, name: str) -> str:
        return nodes.register_node(self.store, facts(name), None, self.now).node_id

    def place(self) -> list[str]:
        for node in queries.nodes(self.store, self.now):
            nodes.node_seen(self.store, node.id, self.now)
        return scheduling.place_queue(self.store, self.now, alive_within_s=30)

    def attempt(self, run_id: str):
        return queries.attempts(self.store, run_id)[-1]

    def view(self, run_id: str):
        view = queries.run(self.store, run_id, self.now)
        assert view is not None
        return view

    def everywhere(self, run_id: str, state: State, **more) -> None:
        """All nodes of the latest attempt report this."""
        attempt = self.attempt(run_id)
        by_name = {node.name: node.id for node in queries.nodes(self.store, self.now)}
        for part in attempt.parts:
            self.node_id = by_name[part.node]
            self.report(attempt.fence, state, part.node_rank, **more)

    def said(self, run_id: str) -> list[str]:
        return [line.text for line in queries.history(self.store, run_id)]


@pytest.fixture
def rack(store) -> Rack:
    made = Rack(store, "")
    for name in ("a", "b"):
        made.join(name)
    return made


ELASTIC = {"nodes": 4, "min_nodes": 2, "elastic": True, "gpus_per_node": 2, "lr_scaling": "linear"}


def test_an_elastic_run_starts_with_the_nodes_there_are_and_keeps_its_global_batch(rack):
    run_id = rack.launch(**ELASTIC)
    view = rack.view(run_id)
    assert (view.state, view.nodes, view.world_size) == (State.STARTING, 2, 4)
    assert (view.global_batch_size, view.base_lr, view.lr) == (64, 0.1, pytest.approx(0.8))
    assert (view.spec.nodes, view.spec.accumulate) == (4, 1)
    assert "launched: image_classifier on 2 to 4 nodes, at most 8 ranks" in rack.said(run_id)
    assert rack.said(run_id)[-1] == (
        "on 2 of 4 nodes, 4 of 8 ranks: global batch 64 kept, accumulation 1 → 2; learning rate 0.8 unchanged"
    )


def test_workers_are_told_what_the_attempt_has_not_what_the_run_was_launched_with(rack):
    run_id = rack.launch(**ELASTIC)
    by_name = {node.name: node.id for node in queries.nodes(rack.store, rack.now)}
    for name in ("a", "b"):
        (wish,) = queries.assignments(rack.store, by_name[name])
        assert (wish.spec.nodes, wish.spec.accumulate) == (2, 2)
        assert wish.spec.scaled_lr == pytest.approx(0.8)
        assert RunSpec.model_validate_json(wish.spec.model_dump_json()) == wish.spec
    assert rack.attempt(run_id).changes["nodes"] == 2


def test_it_gets_no_more_nodes_than_it_names(rack):
    for name in ("c", "d", "e"):
        rack.join(name)
    view = rack.view(rack.launch(**ELASTIC))
    assert (view.nodes, view.global_batch_size, view.lr) == (4, 64, pytest.approx(0.8))


def test_one_node_is_too_few_and_the_words_say_so(store):
    rack = Rack(store, "")
    rack.join("a")
    with pytest.raises(requests.Refused, match="the run needs 2 to 4 nodes with 2 slots each, but 1 node"):
        rack.launch(**ELASTIC)
    view = rack.view(rack.launch(**ELASTIC, wait_for_nodes=True))
    assert view.waiting_for.startswith("needs at least 4 slots on 2 to 4 nodes, 2 are free")


def test_a_run_that_is_not_elastic_waits_for_all_its_nodes_at_first_but_not_later(rack):
    run_id = rack.launch(**ELASTIC | {"elastic": False, "nodes": 2, "min_nodes": 1})
    assert rack.attempt(run_id).changes == {}
    rack.everywhere(run_id, State.FAILED, reason="node lost")
    other = rack.launch(gpus_per_node=2)
    requests.resume(rack.store, run_id, rack.now)
    rack.place()
    view = rack.view(run_id)
    assert (view.state, view.nodes, view.global_batch_size) == (State.STARTING, 1, 32)
    assert "on 1 of 2 nodes, 2 of 4 ranks: global batch 32 kept" in rack.said(run_id)[-1]
    rack.everywhere(run_id, State.FAILED, reason="node lost")
    rack.everywhere(other, State.SUCCEEDED)
    requests.resume(rack.store, run_id, rack.now)
    rack.place()
    assert rack.view(run_id).nodes == 2
    assert rack.said(run_id)[-1] == "on all 2 nodes: batch and learning rate as launched"


def test_a_run_on_all_its_nodes_says_nothing_of_it(rack):
    run_id = rack.launch(nodes=2, gpus_per_node=2)
    assert rack.said(run_id)[-1].startswith("placed on ")
